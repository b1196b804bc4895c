"""What is predicted for real models, beside what they take."""

from __future__ import annotations

import numpy as np
import pytest

import footprints
import hetero
from hetero.assign.memory import footprint, values_of
from real_models import load

CORE = hetero.Core()


@pytest.mark.parametrize("case", ["light_squeezenet", "light_inception_v1", "MiniLM-L3, sequence 16"])
def test_sizes_and_peaks_are_those_of_a_run(case):
    proto, inputs = load(case)
    model = CORE.read_model(proto)
    sized = footprints.with_all_types(model, inputs)  # refuses sizes that contradict those that are known
    needs = footprint(values_of(sized), np.zeros(model.num_nodes), [0], 1)
    assert needs.unknown[0] == 0
    assert needs.weights[0] == sum(
        view.nbytes
        for name, view in ((name, model.constant(model.value_id(name))) for name in model.initializers)
        if model.read_count[model.value_id(name)]
    ) + sum(
        model.constant(value).nbytes
        for value in np.flatnonzero(model.is_constant).tolist()
        if model.value_name(value) not in model.initializers and model.read_count[value]
    )
    taken = footprints.on_the_cpu(sized, inputs)  # which fuses and computes in place
    assert 0.4 * needs.activations[0] < taken < 1.1 * needs.activations[0]
