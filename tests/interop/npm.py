"""Proves to the official npm library, as merchants run it on Node, that our Standard Webhooks verify.

Run: python -m tests.interop.npm (needs node, npm and, the first time, the npm registry)
"""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from streams.delivery.payload import LATEST, body_of
from streams.delivery.profiles import PROFILES
from streams.delivery.sealing import new_secret, public_key_of
from streams.delivery.signing import Signer, signing_secret

CACHE = Path.home() / ".cache" / "hookline" / "npm"
STYLE = PROFILES["standard"]
OLD, NEW, OTHER = (new_secret("hmac-sha256", bytes([n]) * 32) for n in (1, 2, 3))
PRIVATE = new_secret("ed25519", bytes(range(32)))
BODY = body_of("evt_1", "payin.success", 1_700_000_000_000, '{"name": "Zoë", "amount": 1.10}'.encode(), LATEST, 3)

# The library knows no ed25519, so that one is checked by Node's own crypto with the raw key in its DER wrapping.
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


def installed() -> str:
    """Have the library in the cache, and give its version."""
    package = CACHE / "node_modules" / "standardwebhooks" / "package.json"
    if not package.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--prefix", str(CACHE), "standardwebhooks@1"], check=True, timeout=300)
    version: str = json.loads(package.read_text())["version"]
    return version


def main() -> None:
    missing = [tool for tool in ("node", "npm") if not shutil.which(tool)]
    if missing:
        sys.exit(f"interop: {' and '.join(missing)} cannot be found: install Node.js 18 or newer")
    version = installed()
    asked = cases()
    answered = subprocess.run(
        ["node", "-e", JUDGE], cwd=CACHE, input=json.dumps(asked), capture_output=True, text=True, timeout=60, check=False
    )
    if answered.returncode:
        sys.exit(f"interop: node failed:\n{answered.stderr}")
    verdicts = json.loads(answered.stdout)
    for each, verdict in zip(asked, verdicts, strict=True):
        print(f"{'ok      ' if verdict == each['verifies'] else 'MISMATCH'}  {each['what']}")
    wrong = sum(verdict != each["verifies"] for each, verdict in zip(asked, verdicts, strict=True))
    print(f"npm standardwebhooks {version}: {len(asked) - wrong} of {len(asked)} as they must be")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
