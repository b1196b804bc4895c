"""When subgraphs ran, noted by requests of models compiled with PERF_COUNT."""

from __future__ import annotations

import pickle
import threading
import time

import numpy as np
import pytest

import hetero
from report_cases import chain


def test_spans_are_when_it_ran(core: hetero.Core, diamond: hetero.Model) -> None:
    request = core.compile_model(diamond, "HETERO:FPGA,CPU", {"PERF_COUNT": True}).create_infer_request()
    begin = time.perf_counter_ns()
    request.infer(np.ones((2, 3), np.float32))
    end = time.perf_counter_ns()
    spans = request.profiling_info.spans
    assert [(span.subgraph, span.device) for span in spans] == [(1, "FPGA"), (2, "CPU"), (3, "FPGA")]
    edges = [begin, *(at for span in spans for at in (span.begin_ns, span.end_ns)), end]
    assert edges == sorted(edges)
    assert {span.thread for span in spans} == {threading.current_thread().name}
    transfers = [(one.value, one.source, one.readers, one.nbytes) for one in request.profiling_info.transfers]
    assert transfers == [("n2", 1, (2,), 24), ("n3", 1, (3,), 24), ("n4", 2, (3,), 24)]
    assert pickle.loads(pickle.dumps(request.profiling_info)).spans == spans


@pytest.mark.parametrize(
    ("device", "ran_on"), [("CPU", "CPU"), ("FPGA", "FPGA"), ("MULTI:CPU,TEMPLATE", "CPU"), ("TEMPLATE", "TEMPLATE")]
)
def test_the_span_of_a_whole_model(core: hetero.Core, device: str, ran_on: str) -> None:
    model = core.read_model(chain(["a", "b"]))
    request = core.compile_model(model, device, {"PERF_COUNT": True}).create_infer_request()
    begin = time.perf_counter_ns()
    request.infer(np.ones((2, 3), np.float32))
    (span,) = request.profiling_info.spans
    assert (span.subgraph, span.device) == (0, ran_on)
    assert begin <= span.begin_ns <= span.end_ns <= time.perf_counter_ns()


def test_nothing_is_noted_unless_asked_for(core: hetero.Core, diamond: hetero.Model) -> None:
    request = core.compile_model(diamond, "HETERO:FPGA,CPU").create_infer_request()
    request.infer(np.ones((2, 3), np.float32))
    profile = request.profiling_info
    assert (profile, profile.spans, profile.transfers) == ((), (), ())


def test_asynchronous_runs_name_their_thread(core: hetero.Core, diamond: hetero.Model) -> None:
    request = core.compile_model(diamond, "HETERO:FPGA,CPU", {"PERF_COUNT": True}).create_infer_request()
    request.start_async(np.ones((2, 3), np.float32))
    request.wait()
    assert all("stream" in span.thread for span in request.profiling_info.spans)
