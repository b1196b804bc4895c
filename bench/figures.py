"""Make the tables of docs/figures.md, docs/partitioner-figures.md and README.md.

    python bench/figures.py                            # all tables; needs an idle machine with two cores
    python bench/figures.py --only kernels export      # some tables
    python bench/figures.py --quick                    # tiny versions, into copies of the pages, to test the commands
    python bench/figures.py --check                    # compare pages, tables and summary without measuring
    python bench/figures.py --list                     # tables, their commands, and what is missing for them

Each table stands in a page between `<!-- table: NAME -->` and `<!-- end -->`. The command that makes it runs in a
process of its own and prints the table. This program puts the table into the page, with the command, the commit, the
machine and the load below it. If something that a table needs is missing, or its command fails, the table stays as it
is. The exit status is 1 if a command fails. Pages are written after each table, so an interrupted run keeps the tables
made so far.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import importlib.metadata
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import machine
import real_models
from table import Table

ROOT = Path(__file__).parents[1]
FIGURES, PARTITIONER, PLAN, README = "docs/figures.md", "docs/partitioner-figures.md", "docs/plan.md", "README.md"
PAGES = (FIGURES, PARTITIONER, PLAN, README)
LOADED = 0.05  # of the machine's CPU time: if other processes take more, the table says so
WIDTH = 120  # columns of a page
SUMMARY = "summary"
MARKED = re.compile(r"<!-- table: (?P<name>[\w-]+) -->\n(?P<body>.*?)<!-- end -->", re.DOTALL)
MODELS_SUBSET = ("light_resnet50", "light_inception_v1", "light_squeezenet", "MiniLM-L3")


@dataclasses.dataclass(frozen=True)
class Figure:
    """A table of a page.

    ``command``: script in bench/ with its arguments. ``quick``: arguments in place of these that make a tiny version.
    ``packages``, ``models``, ``disk_gb``: what must be there. ``single_blas_thread``: whether NumPy's products have to
    be limited to one thread. ``daemons``: a package whose background processes are measured as other processes, so that
    the load cannot show whether the machine was idle.
    """

    page: str
    command: str
    quick: str
    packages: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    disk_gb: int = 0
    single_blas_thread: bool = False
    daemons: str = ""

    def arguments(self, quick: bool) -> list[str]:
        script, _, full = self.command.partition(" ")
        return [f"bench/{script}", *shlex.split(self.quick if quick else full)]

    def shown_command(self, quick: bool = False) -> str:
        variables = "OPENBLAS_NUM_THREADS=1 " if self.single_blas_thread else ""
        return f"{variables}python {shlex.join(self.arguments(quick))}"

    def missing(self) -> list[str]:
        """What is missing, one item per line."""
        lines = [f"package {package}" for package in self.packages if not is_installed(package)]
        lines += filter(None, map(real_models.missing, self.models))
        if self.disk_gb and shutil.disk_usage(tempfile.gettempdir()).free < self.disk_gb << 30:
            lines.append(f"{self.disk_gb} GB of free disk in {tempfile.gettempdir()}")
        return lines


def is_installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


ORT = ("onnxruntime",)
ALL_MODELS = tuple(dict.fromkeys(model for model, _ in real_models.MODELS.values()))

TABLES: Mapping[str, Figure] = {
    "models": Figure(FIGURES, "compare_models.py", "squeezenet --rounds 1", ORT, ALL_MODELS),
    "memory": Figure(FIGURES, "memory.py", "squeezenet", ORT, ALL_MODELS),
    "cut": Figure(
        FIGURES,
        "compare_models.py --device HETERO:FPGA,CPU",
        "squeezenet --device HETERO:FPGA,CPU --rounds 1",
        ORT,
        ALL_MODELS,
    ),
    "changing-sizes": Figure(FIGURES, "changing_sizes.py", "--quick", ORT, ("MiniLM-L3", "PP-OCRv6_det_small")),
    "kernels": Figure(FIGURES, "kernels.py", "relu --rounds 1", ORT, single_blas_thread=True),
    "operators": Figure(FIGURES, "operators.py", "moves --rounds 1", ORT),
    "convolutions": Figure(FIGURES, "convolutions.py", "squeezenet --rounds 1", ORT),
    "fused": Figure(FIGURES, "fused.py", "gelu --rounds 1", ORT),
    "reading": Figure(FIGURES, "reading.py files", "files --sizes 1000 --rounds 1"),
    "external-weights": Figure(FIGURES, "external_weights.py", "--megabytes 16 --rounds 1", disk_gb=14),
    "types": Figure(FIGURES, "reading.py types", "types --nodes 1500 --rounds 1"),
    "submodels": Figure(FIGURES, "runtime.py submodels", "submodels --submodels 2", ("openvino",)),
    "calls": Figure(FIGURES, "runtime.py calls", "calls"),
    "devices": Figure(FIGURES, "runtime.py devices", "devices --rounds 1", ("openvino",)),
    "soak": Figure(FIGURES, "soak.py --share 0.03 --by-group", '--share 0.0001 --by-group --only "infer, CPU"', ORT),
    "ray-hops": Figure(FIGURES, "ray_hops.py hops", "hops --rounds 2", ("ray",), daemons="ray"),
    "ray-stages": Figure(FIGURES, "ray_hops.py stages", "stages --rounds 1", ("ray",), daemons="ray"),
    "budgets": Figure(
        FIGURES,
        "costs.py budgets --sizes 10000 100000 1000000",
        "budgets --sizes 1000 --kinds chain comb",
    ),
    "max-flow": Figure(
        FIGURES,
        "costs.py libraries",
        "libraries --nodes 1000 --kinds comb",
        ("scipy", "igraph", "ortools", "PyMaxflow"),
    ),
    "predictions": Figure(
        FIGURES, "costs.py models", "models squeezenet --rounds 1 --devices CPU ORT", ORT, MODELS_SUBSET
    ),
    "overlap": Figure(FIGURES, "latency.py sleeping", "sleeping --rounds 1"),
    "overlap-hints": Figure(FIGURES, "latency.py hints", "hints --rounds 4"),
    "overlap-cpu": Figure(FIGURES, "latency.py cpu", "cpu --rounds 1", (), ("light_inception_v1",)),
    "overlap-sharing": Figure(FIGURES, "latency.py sharing", "sharing --rounds 1"),
    "overlap-search": Figure(FIGURES, "latency.py search", "search --sizes 1000 --kinds comb"),
    "overlap-plan": Figure(FIGURES, "latency.py plan", "plan --sizes 1000 --kinds comb"),
    "overlap-exact": Figure(FIGURES, "latency.py exact", "exact --graphs 2", ("ortools",)),
    "export": Figure(FIGURES, "export.py", "MiniLM-L3 --rounds 1", ORT, ("MiniLM-L3", "light_resnet50")),
    "ort-overhead": Figure(FIGURES, "ort_overhead.py", "--instances 1 --seconds 0.1", ORT, ("MiniLM-L3",)),
    "policies": Figure(PARTITIONER, "partition_time.py policies", "policies --sizes 1000 --kinds comb"),
    "documented": Figure(PARTITIONER, "partition_time.py documented", "documented --sizes 1000 --kinds comb"),
    "closure": Figure(PARTITIONER, "partition_time.py closure", "closure"),
    "small": Figure(PARTITIONER, "partition_time.py small", "small"),
    "growth": Figure(PARTITIONER, "scaling.py times --largest 2500000", "times --largest 20000 --kinds comb"),
    "growth-memory": Figure(PARTITIONER, "scaling.py memory --largest 5000000", "memory --largest 20000 --kinds comb"),
    "quality": Figure(
        PARTITIONER,
        "quality.py --sizes 1000 10000 100000 1000000 --seeds 1 --contraction-up-to 100000",
        "--sizes 200 --seeds 1 --kinds comb",
        ("scipy",),
    ),
    "optimum": Figure(PARTITIONER, "optimum.py", "--graphs 30 --max-nodes 6"),
    "peers": Figure(PARTITIONER, "peers.py --limit 30", "--sizes 100 --kinds chain", ("torch", "openvino")),
    "planning": Figure(PLAN, "planning.py", "--nodes 1000 --kinds chain"),
}
"""In the order of the pages."""


@dataclasses.dataclass(frozen=True)
class SummaryRow:
    """A row of README's table. Its cells have cells of another table: ``{column}`` is in the row that begins with
    ``row``, and ``{cell: column}`` in the row that begins with ``row`` and ``cell``."""

    title: str
    table: str
    row: tuple[str, ...]
    hetero: str
    other: str

    def cells(self, table: Table) -> list[str]:
        def cell(reference: re.Match[str]) -> str:
            last, _, column = reference[1].rpartition(": ")
            return table.cell((*self.row, last) if last else self.row, column).strip("*")

        return [re.sub(r"\{([^}]*)\}", cell, text) for text in (self.title, self.hetero, self.other)]


ONNXRUNTIME = "{onnxruntime}: onnxruntime"
SUMMARY_ROWS = (
    SummaryRow(
        "GoogLeNet v1 on `HETERO:FPGA,CPU`, {subgraphs} subgraphs",
        "cut",
        ("light_inception_v1",),
        "{HETERO:FPGA,CPU}",
        "{onnxruntime}: onnxruntime, the whole model",
    ),
    SummaryRow("MiniLM-L3, sequence 128, on `CPU`", "models", ("MiniLM-L3, sequence 128",), "{CPU}", ONNXRUNTIME),
    SummaryRow("ResNet-50 on `CPU`", "models", ("light_resnet50",), "{CPU}", ONNXRUNTIME),
    SummaryRow("YOLOX text detector on `CPU`", "models", ("common_det, 416x416",), "{CPU}", ONNXRUNTIME),
    SummaryRow(
        "load an exported MiniLM-L3 with memory-mapped weights",
        "export",
        ("MiniLM-L3",),
        "{CPU, import: ready}",
        "{onnxruntime: ready}: onnxruntime session from the ONNX file",
    ),
    SummaryRow(
        "read and partition a file of a million nodes",
        "reading",
        ("1,000,000 blocks",),
        "{… and partition}",
        "{`onnx.load`}: `onnx.load` of the same file",
    ),
    SummaryRow(
        "partition a random graph of a million nodes",
        "policies",
        ("random", "1,000,000"),
        "{auto} × a topological sort",
        "{one sort}: topological sort of the same graph",
    ),
    SummaryRow(
        "partition transformer blocks, 2,996 nodes",
        "peers",
        ("transformer", "2,996"),
        "{hetero `auto`: CPU time}, {hetero `auto`: subgraphs} subgraphs",
        "{OpenVINO HETERO: CPU time}, {OpenVINO HETERO: subgraphs}: OpenVINO HETERO; "
        "{torch.fx, skip_horizontal_fusion: CPU time}, {torch.fx, skip_horizontal_fusion: subgraphs}: torch.fx",
    ),
)


def summary(bodies: Mapping[str, str]) -> str:
    """README's table, from the tables of the pages."""
    table = Table("", "hetero", "compared with")
    for row in SUMMARY_ROWS:
        table.add(*row.cells(Table.parse(bodies[row.table])))
    return f"\n{table}\n\n"


def bodies_of(folder: Path, pages: Iterable[str] = PAGES) -> dict[str, str]:
    """Name of each table in the pages -> the text between its markers."""
    bodies: dict[str, str] = {}
    for page in pages:
        text = (folder / page).read_text(encoding="utf-8")
        matches = list(MARKED.finditer(text))
        if len(matches) != text.count("<!-- table:") or len(matches) != text.count("<!-- end -->"):
            raise ValueError(f"{page}: each <!-- table: NAME --> needs its own <!-- end -->")
        for match in matches:
            if match["name"] in bodies:
                raise ValueError(f"{page}: table {match['name']} is there twice")
            bodies[match["name"]] = match["body"]
    return bodies


def put(page: Path, name: str, body: str) -> None:
    """Replace the text between the markers of a table."""
    text = page.read_text(encoding="utf-8")
    replaced, count = re.subn(
        rf"(<!-- table: {re.escape(name)} -->\n).*?(<!-- end -->)", lambda m: m[1] + body + m[2], text, flags=re.DOTALL
    )
    if count != 1:
        raise ValueError(f"{page} has {count} tables {name}")
    temporary = page.with_name(f".{page.name}.new")
    temporary.write_text(replaced, encoding="utf-8")
    temporary.replace(page)


def problems(folder: Path, with_summary: bool = True) -> list[str]:
    """Problems of the pages: markers, tables, and, ``with_summary``, README's summary."""
    try:
        bodies = bodies_of(folder)
    except ValueError as error:
        return [str(error)]
    where = {name: page for page in PAGES for name in bodies_of(folder, [page])}
    expected = {name: figure.page for name, figure in TABLES.items()} | {SUMMARY: README}
    lines = [f"{where[name]}: unknown table {name}" for name in where if name not in expected]
    lines += [f"{page}: no table {name}" for name, page in expected.items() if where.get(name) != page]
    for name, body in bodies.items():
        try:
            Table.parse(body)
        except ValueError as error:
            lines.append(f"{where[name]}, {name}: {error}")
    if lines:
        return lines
    try:
        if with_summary and bodies[SUMMARY] != summary(bodies):
            lines.append(f"{README}: the summary differs from the pages: run python bench/figures.py --only {SUMMARY}")
    except (KeyError, ValueError) as error:  # a row or a column is not there
        lines.append(f"{README}: the summary cannot be made: {error}")
    return lines


@dataclasses.dataclass(frozen=True)
class Result:
    """``table``: None if the command failed; then ``error`` is its output."""

    table: Table | None
    error: str
    load: machine.Load


def run(figure: Figure, quick: bool) -> Result:
    """The command of a table, in a process of its own."""
    environment = os.environ | ({"OPENBLAS_NUM_THREADS": "1"} if figure.single_blas_thread else {})
    meter = machine.LoadMeter()
    done = subprocess.run(
        [sys.executable, *figure.arguments(quick)],
        cwd=ROOT,
        env=environment,
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    left = not machine.wait_for_orphans()
    load = meter.stop()
    if done.returncode:
        return Result(None, f"exit status {done.returncode}\n{done.stdout}{done.stderr}", load)
    if left:
        return Result(None, "it left processes behind", load)
    try:
        return Result(Table.parse(done.stdout), "", load)
    except ValueError as error:
        return Result(None, f"{error}\n{done.stderr}", load)


def is_loaded(figure: Figure, load: machine.Load) -> bool:
    return load.foreign > LOADED and not figure.daemons


def body(figure: Figure, result: Result, commit: str, quick: bool) -> str:
    """A table with the conditions of its measurement."""
    load = result.load
    packages = ("numpy", "onnx", *figure.packages)
    others = "other processes" + (f", those of {figure.daemons} included," if figure.daemons else "")
    conditions = (
        f"`{figure.shown_command(quick)}`, commit {commit}, {datetime.datetime.now(datetime.UTC):%Y-%m-%d}; "
        f"{machine.processor()}; {machine.versions(packages)}; load average {load.before:.1f} before and "
        f"{load.after:.1f} after; {others} took {load.foreign:.0%} of the CPU time."
    )
    if is_loaded(figure, load):
        conditions = f"**Made on a loaded machine.** {conditions}"
    text = textwrap.fill(conditions, WIDTH, break_long_words=False, break_on_hyphens=False)
    return f"\n{result.table}\n\n{text}\n\n"


def make(
    names: Sequence[str],
    folder: Path,
    quick: bool,
    report: Callable[[str], None] = lambda line: print(line, flush=True),
) -> list[str]:
    """Make the tables in the pages of ``folder``. Returns the names of those whose command failed."""
    machine.adopt_orphans()
    commit = machine.commit()  # before the pages change
    failed = []
    begin = time.perf_counter()
    for name in names:
        if name == SUMMARY:
            continue
        figure = TABLES[name]
        if missing := figure.missing():
            report(f"{name}: skipped, missing: {'; '.join(missing)}")
            continue
        result = run(figure, quick)
        if result.table is None:
            failed.append(name)
            report(f"{name}: failed: {figure.shown_command(quick)}\n{textwrap.indent(result.error, '    ')}")
            continue
        put(folder / figure.page, name, body(figure, result, commit, quick))
        load = result.load
        mark = " (loaded machine)" if is_loaded(figure, load) else ""
        report(f"{name}: {load.elapsed:.0f} s, CPU {load.cpu_seconds:.0f} s, other processes {load.foreign:.0%}{mark}")
    if SUMMARY in names:
        if quick:
            report(f"{SUMMARY}: skipped, because --quick does not make the rows that it needs")
        else:
            try:
                put(folder / README, SUMMARY, summary(bodies_of(folder)))
            except (KeyError, ValueError) as error:  # a row or a column is not there
                failed.append(SUMMARY)
                report(f"{SUMMARY}: failed: {error}")
    report(f"total: {time.perf_counter() - begin:.0f} s")
    return failed


def copied_pages(target: Path) -> Path:
    """Copies of the pages in a folder."""
    for page in PAGES:
        (target / page).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / page, target / page)
    return target


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = (*TABLES, SUMMARY)
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="TABLE", help=", ".join(names))
    parser.add_argument("--skip", nargs="+", choices=names, default=(), metavar="TABLE")
    parser.add_argument("--quick", action="store_true", help="tiny tables, into copies of the pages")
    parser.add_argument("--check", action="store_true", help="measure nothing; exit status 1 if the pages are wrong")
    parser.add_argument("--list", action="store_true", help="commands and what is missing for them")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="write copies of the pages there")
    arguments = parser.parse_args()
    chosen = [name for name in names if name in arguments.only and name not in arguments.skip]
    if arguments.check:
        wrong = problems(ROOT)
        print("\n".join(wrong) or "the pages are right")
        return bool(wrong)
    if arguments.list:
        for name in chosen:
            if name != SUMMARY:
                missing = TABLES[name].missing()
                print(f"{name}: {TABLES[name].shown_command()}" + f"; missing: {'; '.join(missing)}" * bool(missing))
        return 0
    if wrong := problems(ROOT, SUMMARY not in chosen):
        print("\n".join(wrong), file=sys.stderr)
        return 1
    folder = ROOT
    if arguments.quick or arguments.out:
        folder = copied_pages(arguments.out or Path(tempfile.mkdtemp(prefix="figures-")))
        print(f"pages: {folder}")
    return bool(make(chosen, folder, arguments.quick))


if __name__ == "__main__":
    sys.exit(main())
