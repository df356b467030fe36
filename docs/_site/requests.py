"""The page of the service's requests, from its OpenAPI document."""

import json
import tempfile
from pathlib import Path

import metricdp as mdp
from metricdp.service import LedgerOptions, Settings, create_app

from .markdown import code, table


def document():
    """Return the OpenAPI document of a service with one mechanism of a map, and a ledger."""
    homes = [[24.93, 60.16], [24.97, 60.18]]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "helsinki.mdp"
        mdp.fit(mdp.Problem.from_lonlat(homes, homes), 2.0, "em").save(path)
        ledger = LedgerOptions(Path(folder) / "budgets.db", max_epsilon=20)
        return create_app(Settings(files=(path,), ledger=ledger)).openapi()


def page():
    """Return a section for each request, then one for each message, as Markdown."""
    found = document()
    schemas = found["components"]["schemas"]
    requests = [
        request(method.upper(), path, said, schemas)
        for path, methods in found["paths"].items()
        for method, said in methods.items()
    ]
    messages = [message(name, schema) for name, schema in schemas.items()]
    return "\n".join([*requests, "## Errors\n", refusals(found), "## Messages\n", *messages])


def refusals(found):
    """Return the statuses of errors and when they are given, over all requests."""
    said = (one for methods in found["paths"].values() for one in methods.values())
    when = {status: one["description"] for request in said for status, one in request["responses"].items()}
    return table(["status", "when"], [[code(status), when[status]] for status in sorted(when) if status >= "400"])


def request(method, path, said, schemas):
    """Return what one request takes and answers."""
    parts = [f"## {method} {path}", f"{said['summary']}."]
    if "description" in said:
        parts.append(said["description"])
    for body in said.get("requestBody", {}).get("content", {}).values():
        schema = resolved(body["schema"], schemas)
        parts += ["It takes a JSON object:", properties(schema)]
        parts += [f"```json\n{json.dumps(one, ensure_ascii=False)}\n```" for one in examples(body, schema)]
    good = [shapes(answer) for status, answer in said["responses"].items() if status < "400"]
    bad = [code(status) for status in said["responses"] if status >= "400"]
    parts.append(f"Answer: {', '.join(good) or 'text'}." + (f" [Errors](#errors): {', '.join(bad)}." if bad else ""))
    return "\n\n".join(parts) + "\n"


def resolved(schema, schemas):
    """Return the schema that a reference names."""
    return schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def examples(body, schema):
    """Return the examples of a body, wherever the document keeps them."""
    named = [one["value"] for one in body.get("examples", {}).values()]
    return named or [one for one in (body.get("example"),) if one] or schema.get("examples", [])


def shapes(answer):
    """Return the messages that an answer may hold."""
    kinds = (type_of(one.get("schema", {})) for kind, one in answer.get("content", {}).items() if one.get("schema"))
    return ", ".join(kinds)


def message(name, schema):
    """Return the fields of a message."""
    return f"### {name}\n\n{schema.get('description', '')}\n\n{properties(schema)}"


def properties(schema):
    """Return a table of the fields of an object."""
    required = set(schema.get("required", ()))
    rows = [
        [code(name), type_of(one), "required" if name in required else default(one), one.get("description", "")]
        for name, one in schema.get("properties", {}).items()
    ]
    return table(["field", "type", "default", "meaning"], rows)


def default(schema):
    """Return the default of a field."""
    return code(json.dumps(schema["default"], ensure_ascii=False)) if "default" in schema else "none"


def type_of(schema):
    """Return the type of a value in words, with a link where it is a message."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(type_of(one) for one in schema["anyOf"])
    if "const" in schema:
        return code(json.dumps(schema["const"]))
    if "enum" in schema:
        return " or ".join(code(json.dumps(one)) for one in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {type_of(schema.get('items', {}))}"
    return schema.get("type", "anything")
