"""Proves to the official npm library, as merchants run it on Node, that our Standard Webhooks verify.

Run: python -m tests.interop.npm

It needs node and npm, and the first time the registry that npm is configured for. It ends with 1 if a check fails, and with 3 if it
could not check anything. The library has no ed25519, so those signatures are verified by Node's own crypto, as a merchant would.
"""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from streams.delivery.payload import LATEST, body_of
from streams.delivery.profiles import PROFILES
from streams.delivery.sealing import new_secret, public_key_of
from streams.delivery.signing import Signer, signing_secret

LIBRARY = "standardwebhooks@1"
INSTALL_TIMEOUT_S, JUDGE_TIMEOUT_S = 300, 60
NOT_CHECKED = 3
CACHE = Path.home() / ".cache" / "hookline" / "npm"
STYLE = PROFILES["standard"]
OLD, NEW, OTHER = (new_secret("hmac-sha256", bytes([n]) * 32) for n in (1, 2, 3))
PRIVATE = new_secret("ed25519", bytes(range(32)))
BODY = body_of("evt_1", "payin.success", 1_700_000_000_000, '{"name": "Zoë", "amount": 1.10}'.encode(), LATEST, 3)

# Node takes a raw ed25519 key only in its DER wrapping.
JUDGE = """
const { Webhook } = require("standardwebhooks");
const crypto = require("node:crypto");
const fs = require("node:fs");
const DER = Buffer.from("302a300506032b6570032100", "hex");

function edVerifies({ held, body, headers }) {
  const raw = Buffer.from(held.slice("whpk_".length), "base64");
  const key = crypto.createPublicKey({ key: Buffer.concat([DER, raw]), format: "der", type: "spki" });
  const signed = Buffer.from(`${headers["webhook-id"]}.${headers["webhook-timestamp"]}.${body}`);
  const signatures = headers["webhook-signature"].split(" ").filter((each) => each.startsWith("v1a,"));
  return signatures.some((each) => crypto.verify(null, signed, key, Buffer.from(each.slice("v1a,".length), "base64")));
}

function libraryVerifies({ held, body, headers }) {
  try { new Webhook(held).verify(body, headers); return true; } catch (error) {
    if (error.name !== "WebhookVerificationError" && error.constructor.name !== "WebhookVerificationError") throw error;
    return false;
  }
}

const cases = JSON.parse(fs.readFileSync(0, "utf8"));
console.log(JSON.stringify(cases.map((each) => (each.held.startsWith("whpk_") ? edVerifies(each) : libraryVerifies(each)))));
"""


def case(what: str, verifies: bool, held: str, *secrets: str, body: bytes = BODY) -> dict[str, Any]:
    made = [signing_secret("s", "ed25519" if each.startswith("whsk_") else "hmac-sha256", each, STYLE.signature) for each in secrets]
    signer = Signer(STYLE, "sub_1", made, {})
    headers = signer.visible_headers(signer.headers("evt_1", "payin.success", 1, int(time.time()), BODY, 3))
    return {"what": what, "verifies": verifies, "held": held, "body": body.decode(), "headers": headers}


def cases() -> list[dict[str, Any]]:
    public, other_public = public_key_of(PRIVATE), public_key_of(new_secret("ed25519", bytes(32)))
    return [
        case("hmac: the secret verifies", True, NEW, NEW),
        case("hmac: another secret does not", False, OTHER, NEW),
        case("hmac: another body does not", False, NEW, NEW, body=BODY + b" "),
        case("rotation: the new secret verifies", True, NEW, NEW, OLD),
        case("rotation: the old secret verifies", True, OLD, NEW, OLD),
        case("rotation: a third secret does not", False, OTHER, NEW, OLD),
        case("rotation from hmac to ed25519: the old secret verifies", True, OLD, PRIVATE, OLD),
        case("rotation from hmac to ed25519: the public key verifies (node:crypto)", True, public, PRIVATE, OLD),
        case("ed25519: the public key verifies (node:crypto)", True, public, PRIVATE),
        case("ed25519: another public key does not (node:crypto)", False, other_public, PRIVATE),
        case("ed25519: another body does not (node:crypto)", False, public, PRIVATE, body=BODY + b" "),
    ]


def cannot(reason: str) -> NoReturn:
    """End without a verdict."""
    print(f"interop: {reason}", file=sys.stderr)
    sys.exit(NOT_CHECKED)


def installed() -> str:
    """Have the library in the cache, and give its version."""
    package = CACHE / "node_modules" / "standardwebhooks" / "package.json"
    if not package.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(CACHE), LIBRARY]
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False)
        if done.returncode:
            cannot(f"npm could not install {LIBRARY}:\n{done.stderr}\nSee whether it reaches its registry: npm ping")
    version: str = json.loads(package.read_text())["version"]
    return version


def judged(asked: list[dict[str, Any]]) -> list[bool]:
    """Have Node say of each case whether it verifies."""
    command = ["node", "-e", JUDGE]
    done = subprocess.run(command, cwd=CACHE, input=json.dumps(asked), capture_output=True, text=True, timeout=JUDGE_TIMEOUT_S, check=False)
    if done.returncode:
        cannot(f"node failed: is it version 18 or newer? (node --version)\n{done.stderr}")
    verdicts: list[bool] = json.loads(done.stdout)
    return verdicts


def main() -> None:
    if missing := [tool for tool in ("node", "npm") if not shutil.which(tool)]:
        cannot(f"{' and '.join(missing)} cannot be found. Install both: apt-get install nodejs npm")
    version, asked = installed(), cases()
    right = [verdict == each["verifies"] for each, verdict in zip(asked, judged(asked), strict=True)]
    for each, is_right in zip(asked, right, strict=True):
        print(f"{'ok' if is_right else 'MISMATCH':10}{each['what']}")
    print(f"npm standardwebhooks {version}, and node:crypto for ed25519, which it has not: {sum(right)} of {len(right)} as they must be")
    sys.exit(0 if all(right) else 1)


if __name__ == "__main__":
    main()
