"""What we agreed to do and not to do, kept by a test."""

import ast
import re
from pathlib import Path

import pytest

from streams.roles import AGENTS, Equipment
from streams.settings import Settings
from topology.flow import ROLES, TOPICS

ROOT = Path(__file__).parents[1]
SOURCES = sorted(path for folder in ("streams", "schemas", "topology") for path in (ROOT / folder).rglob("*.py"))
PURE = ["streams/log/offsets.py", "streams/log/units.py", "streams/ladder/rules.py", "topology/cluster.py", "schemas/compatibility.py"]
PURE += [
    f"streams/payouts/{name}.py"
    for name in ("money", "policy", "ledger", "payout", "messages", "steps", "people", "saga", "batch", "audit", "books")
]
IMPURE = {"confluent_kafka", "time", "random", "os", "asyncio", "aiohttp", "structlog", "rocksdict", "secrets"}
LINES_MAX, FUNCTION_LINES_MAX = 450, 60


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_a_file_has_one_subject_and_says_it_in_its_first_sentence(path: Path) -> None:
    tree = ast.parse(path.read_text())

    assert len(path.read_text().splitlines()) <= LINES_MAX
    assert ast.get_docstring(tree), "no docstring"


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_a_function_fits_on_a_screen(path: Path) -> None:
    functions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]

    assert [f.name for f in functions if (f.end_lineno or 0) - f.lineno > FUNCTION_LINES_MAX] == []


@pytest.mark.parametrize("name", PURE)
def test_rules_import_no_kafka_clock_chance_or_log(name: str) -> None:
    tree = ast.parse((ROOT / name).read_text())
    imported = {alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {(node.module or "").split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}

    assert imported & IMPURE == set()


def test_only_the_settings_read_the_environment() -> None:
    readers = [named(path) for path in SOURCES if re.search(r"os\.environ|getenv", path.read_text())]

    assert set(readers) <= {"streams/settings.py", "topology/broker_jars.py", "topology/broker_java.py"}  # JAVA_HOME and the cache folder


def test_agents_take_topics_from_the_topology_and_never_from_a_string() -> None:
    names = "|".join(re.escape(topic.name) for topic in TOPICS if "-" in topic.name)
    guilty = [
        named(path) for path in SOURCES if path.is_relative_to(ROOT / "streams") and re.search(rf"[\"']({names})[\"']", path.read_text())
    ]

    assert guilty == []


@pytest.mark.parametrize("role", [role for role in ROLES if role.name in AGENTS and role.changelog], ids=lambda role: role.name)
def test_what_an_agent_declares_is_what_the_flow_shows(role: object, tmp_path: Path) -> None:
    declared = next(each for each in ROLES if each is role)
    agents = Equipment([declared.name], Settings(state_dir=tmp_path), {}).agents

    assert {topic.name for agent in agents for topic in agent.reads} == {topic.name for topic in declared.reads}
    assert {topic.name for agent in agents for topic in agent.writes} == {topic.name for topic in declared.writes}
    assert {agent.changelog for agent in agents} == {declared.changelog}
