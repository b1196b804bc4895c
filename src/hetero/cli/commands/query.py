"""``hetero query``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import click

from ..options import json_option, model_argument, new_command, shape_options
from ..planning import Planning, planning_options

__all__ = ["command"]

_MOST_OPERATORS = 6  # named in one row
_QUOTED = re.compile(r"'[^']*'")


@new_command("query model.onnx -d HETERO:FPGA,CPU --nodes")
@model_argument()
@planning_options("Device or list.", default="CPU", plans=False)
@click.option("--nodes", "per_node", is_flag=True, help="Also print a row for each node that a device rejects.")
@shape_options
@json_option
def command(
    model: str,
    planning: Planning,
    per_node: bool,
    as_json: bool,
    **sizes: Any,
) -> None:
    """Show which devices support which operators, and why they reject others.

    Affinities and pins are ignored. Limits on memory and on subgraphs are listed; `hetero plan` applies them. The exit
    code is 1 if no device in the list supports a node.
    """
    from ...base.device_string import parse_device
    from ...base.formatting import counted
    from ..group import Failure
    from ..inputs import InputChoice
    from ..session import Session
    from ..text import print_json, print_table, shorten

    session = Session(model, planning)
    session.state_sizes(InputChoice(**sizes))
    device = planning.device or ""
    answer = session.core.query_model(session.model, device, planning.config())
    devices = parse_device(device).devices or (device,)
    nodes = dict.fromkeys((*session.model.keys, *answer, *answer.reasons))  # includes function calls and their nodes
    operator_of = _operators(session)
    by_nodes = _answered_by_nodes(answer) if session.model.functions else ()
    unsupported = [key for key in session.model.keys if key not in answer and key not in by_nodes]
    rows = [_row(name, answer, operator_of) for name in devices]
    if as_json:
        print_json(
            {
                "model": model,
                "device": device,
                "devices": rows,
                "nodes": {key: {"device": answer.get(key), "reasons": answer.reasons.get(key, {})} for key in nodes},
                "unsupported": unsupported,
            }
        )
    else:
        print_table(
            f"{shorten(session.model.name)} on {device}: {counted(session.model.num_nodes, 'node')}",
            ("device", ">supported", ">rejected", ">assigned", "assigned operators"),
            [
                (
                    row["device"],
                    f"{len(nodes) - row['refused']:,}",
                    f"{row['refused']:,}",
                    f"{row['given']:,}",
                    _operators_text(row["operators"]),
                )
                for row in rows
            ],
        )
        refusals = [
            (row["device"], f"{entry['nodes']:,}", _operators_text(entry["operators"]), entry["reason"])
            for row in rows
            for entry in row["refusals"]
        ]
        if refusals:
            print_table("Reasons for rejection", ("device", ">nodes", "operators", "reason"), refusals)
        limits = [(row["device"], text) for row in rows for text in row["limits"]]
        if limits:
            print_table("Limits that only plans apply", ("device", "limit"), limits)
        if per_node:
            print_table(
                "Rejected nodes",
                ("node", "operator", "assigned to", "rejected by", "reason"),
                [
                    (shorten(key), operator_of.get(key, ""), answer.get(key, "none"), refusing, reason)
                    for key, reasons in answer.reasons.items()
                    for refusing, reason in reasons.items()
                ],
                max_rows=None,
            )
    if unsupported:
        refusing = device if len(devices) == 1 else f"no device in the list [{', '.join(devices)}]"
        verb = "does not support" if len(devices) == 1 else "supports"
        raise Failure(f"{refusing} {verb} {counted(len(unsupported), 'node')}")


def _row(device: str, answer: Any, operator_of: Mapping[str, str]) -> dict[str, Any]:
    """The answer of one device. Rejections are grouped by reason, the most common first; reasons that differ only in
    quoted names are one group."""
    placed_ops = Counter(operator_of.get(key, "?") for key, chosen in answer.items() if chosen == device)
    groups: dict[str, list[str]] = {}
    for key, reasons in answer.reasons.items():
        if device in reasons:
            groups.setdefault(_QUOTED.sub("'…'", reasons[device]), []).append(key)
    refusals = []
    for shared, keys in sorted(groups.items(), key=lambda entry: (-len(entry[1]), entry[0])):
        distinct = {answer.reasons[key][device] for key in keys}
        operators = Counter(operator_of.get(key, "?") for key in keys)
        reason = shared if len(distinct) > 1 else distinct.pop()
        refusals.append({"reason": reason, "nodes": len(keys), "operators": dict(operators.most_common())})
    return {
        "device": device,
        "given": placed_ops.total(),
        "refused": sum(map(len, groups.values())),
        "operators": dict(placed_ops.most_common()),
        "refusals": refusals,
        "limits": list(answer.limits.get(device, ())),
    }


def _operators(session: Any) -> dict[str, str]:
    """Node key -> operator."""
    model = session.model
    return dict(zip(model.keys, map(model.op_types.__getitem__, model.op_type_of.tolist()), strict=True))


def _answered_by_nodes(answer: Mapping[str, str]) -> set[str]:
    """The keys of function calls whose nodes (``call/node``) are answered in their place."""
    return {key[:end] for key in answer for end, sign in enumerate(key) if sign == "/"}


def _operators_text(operators: Mapping[str, int]) -> str:
    named = [f"{name} × {count:,}" for name, count in list(operators.items())[:_MOST_OPERATORS]]
    return ", ".join(named) + (f", … {len(operators) - len(named)} more" if len(operators) > len(named) else "")
