"""What every device must do. See `hetero.testing` for how to use it."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from ..artifact.importing import import_model
from ..artifact.reader import open_artifact
from ..errors import HeteroError, InferenceError, NotSupported, PropertyError, UnsupportedModel
from ..model.model import Model
from ..model.read import read_model
from ..plugin import CompiledModel, Plugin, Support
from ..runtime.profile import EXECUTED, NOT_RUN, OPTIMIZED_OUT
from .cases import ContractCase, make_model, standard_cases

__all__ = ["PluginContract"]


class PluginContract:
    """Base class of a device's tests: override the fixture `plugin`, and `cases` and `config` if need be."""

    rtol = 1e-4
    atol = 1e-5
    """How far results may be from NumPy's."""

    config: Mapping[str, Any] = {}
    """Properties that queries and compilations of this suite are given, for devices that need some."""

    @pytest.fixture
    def plugin(self) -> Plugin:
        raise NotImplementedError("override the fixture `plugin` to return the plugin under test")

    def cases(self) -> tuple[ContractCase, ...]:
        """The models the device is tried on."""
        return standard_cases()

    # -- helpers ------------------------------------------------------------------------------------------------

    def supported(self, plugin: Plugin) -> Iterator[tuple[ContractCase, Model]]:
        """The cases the device takes whole."""
        for case in self.cases():
            model = read_model(case.model)
            if plugin.query_model(model, self.config).mask.all():
                yield case, model

    def first(self, plugin: Plugin) -> tuple[ContractCase, CompiledModel]:
        case, model = next(self.supported(plugin))
        return case, self.compiled(plugin, model)

    def compiled(self, plugin: Plugin, model: Model, **config: Any) -> CompiledModel:
        return plugin.compile_model(model, {**self.config, **config})

    def check(self, case: ContractCase, feed: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> None:
        expected = case.expected(feed)
        assert set(outputs) == set(expected), case.name
        for name, array in expected.items():
            found = outputs[name]
            assert isinstance(found, np.ndarray), f"{case.name}: {name} is a {type(found).__name__}"
            assert found.dtype == array.dtype, f"{case.name}: {name}"
            assert found.shape == array.shape, f"{case.name}: {name}"
            np.testing.assert_allclose(found, array, self.rtol, self.atol, err_msg=f"{case.name}: {name}")

    # -- query --------------------------------------------------------------------------------------------------

    def test_takes_a_case(self, plugin: Plugin) -> None:
        names = [case.name for case, _ in self.supported(plugin)]
        assert names, "the device takes no case whole: override cases() with models it takes"

    def test_name_is_a_device_name(self, plugin: Plugin) -> None:
        assert plugin.name.replace("_", "a").isalnum()

    def test_query_gives_a_reason_per_refusal(self, plugin: Plugin) -> None:
        for case in self.cases():
            model = read_model(case.model)
            support = plugin.query_model(model, self.config)
            assert isinstance(support, Support), case.name
            assert support.mask.shape == (model.num_nodes,), case.name
            assert support.mask.dtype == np.bool_, case.name
            assert sorted(support.reasons) == np.flatnonzero(~support.mask).tolist(), case.name
            assert all(isinstance(reason, str) and reason for reason in support.reasons.values()), case.name

    def test_query_is_repeatable(self, plugin: Plugin) -> None:
        for case in self.cases():
            first, again = (plugin.query_model(read_model(case.model), self.config) for _ in range(2))
            assert first.mask.tolist() == again.mask.tolist(), case.name
            assert dict(first.reasons) == dict(again.reasons), case.name

    def test_query_ignores_affinities(self, plugin: Plugin) -> None:
        for case in self.cases():
            model = read_model(case.model)
            placed = model.with_affinity(dict.fromkeys(model.keys, "ELSEWHERE"))
            plain, pinned = plugin.query_model(model, self.config), plugin.query_model(placed, self.config)
            assert plain.mask.tolist() == pinned.mask.tolist(), case.name

    def test_query_leaves_the_model_alone(self, plugin: Plugin) -> None:
        for case in self.cases():
            model = read_model(case.model)
            before = model.keys, model.to_bytes()
            plugin.query_model(model, self.config)
            assert (model.keys, model.to_bytes()) == before, case.name

    def test_query_refuses_what_nobody_knows(self, plugin: Plugin) -> None:
        model = read_model(self.model_with_unknown_operator())
        support = plugin.query_model(model, self.config)
        unknown = model.index_of("mystery")
        assert not support.mask[unknown]
        assert support.reasons[unknown]

    def model_with_unknown_operator(self) -> onnx.ModelProto:
        nodes = [
            helper.make_node("Relu", ["x"], ["a"], name="known"),
            helper.make_node("Mystery", ["a"], ["y"], name="mystery", domain="hetero.contract.unknown"),
        ]
        proto = make_model(nodes, {"x": [2]}, {"y": [2]})
        proto.opset_import.append(helper.make_opsetid("hetero.contract.unknown", 1))
        return proto

    # -- compile ------------------------------------------------------------------------------------------------

    def test_what_the_query_takes_compiles_and_is_right(self, plugin: Plugin) -> None:
        for case, model in self.supported(plugin):
            compiled = self.compiled(plugin, model)
            request = compiled.create_infer_request()
            for feed in case.feeds:
                self.check(case, feed, request.infer(feed))

    def test_ports_are_those_of_the_model(self, plugin: Plugin) -> None:
        for case, model in self.supported(plugin):
            compiled = self.compiled(plugin, model)
            assert compiled.inputs == model.inputs, case.name
            assert [port.name for port in compiled.outputs] == [port.name for port in model.outputs], case.name

    def test_exported_models_are_imported_with_the_same_results(self, plugin: Plugin) -> None:
        """For devices that export; see `CompiledModel.export_payload` and `Plugin.import_payload`."""
        for case, model in self.supported(plugin):
            compiled = self.compiled(plugin, model)
            expected = [compiled(feed).arrays() for feed in case.feeds]
            stream = io.BytesIO()
            try:
                compiled.export_model(stream)
            except NotSupported:
                pytest.skip("the device exports nothing")
            imported = import_model(open_artifact(stream.getvalue()), plugin, self.config)
            assert imported.inputs == compiled.inputs, case.name
            assert imported.outputs == compiled.outputs, case.name
            for feed, wanted in zip(case.feeds, expected, strict=True):
                found = imported(feed).arrays()
                assert [array.tobytes() for array in found] == [array.tobytes() for array in wanted], case.name

    def test_compile_names_the_node_it_cannot_take(self, plugin: Plugin) -> None:
        model = read_model(self.model_with_unknown_operator())
        with pytest.raises((UnsupportedModel, NotSupported)) as caught:
            self.compiled(plugin, model)
        assert "mystery" in str(caught.value)
        # A device that runs over others names those.
        refusing = getattr(caught.value, "unsupported", {}).get("mystery", ())
        assert plugin.name in str(caught.value) or (refusing and all(name in str(caught.value) for name in refusing))

    def test_compiled_model_knows_its_device(self, plugin: Plugin) -> None:
        _, compiled = self.first(plugin)
        assert compiled.device.split(":")[0].split(".")[0] == plugin.name
        assert compiled.get_property("EXECUTION_DEVICES")
        with pytest.raises(PropertyError):
            compiled.get_property("NO_SUCH_PROPERTY")

    # -- properties ---------------------------------------------------------------------------------------------

    def test_supported_properties_can_be_read(self, plugin: Plugin) -> None:
        names = plugin.get_property("SUPPORTED_PROPERTIES")
        assert "FULL_DEVICE_NAME" in names
        for name in names:
            plugin.get_property(name)
        assert isinstance(plugin.get_property("FULL_DEVICE_NAME"), str)

    def test_properties_are_writable_as_declared(self, plugin: Plugin) -> None:
        for name in plugin.get_property("SUPPORTED_PROPERTIES"):
            if plugin.declares(name):
                plugin.set_property({name: plugin.get_property(name)})
            else:
                with pytest.raises(PropertyError, match=name):
                    plugin.set_property({name: plugin.get_property(name)})

    def test_unknown_property_names_the_nearest(self, plugin: Plugin) -> None:
        known = plugin.get_property("SUPPORTED_PROPERTIES")
        misspelt = "FULL_DEVICE_NAMES"
        assert misspelt not in known
        for action in self.property_actions(plugin, misspelt):
            with pytest.raises(PropertyError, match=r"FULL_DEVICE_NAME\b"):
                action()

    def property_actions(self, plugin: Plugin, name: str) -> list[Callable[[], Any]]:
        _, model = next(self.supported(plugin))
        return [
            lambda: plugin.get_property(name),
            lambda: plugin.set_property({name: 1}),
            lambda: plugin.compile_model(model, {**self.config, name: 1}),
            lambda: plugin.query_model(model, {**self.config, name: 1}),
        ]

    def test_set_property_is_all_or_nothing(self, plugin: Plugin) -> None:
        if not plugin.declares("PERF_COUNT"):
            pytest.skip("the device has no PERF_COUNT")
        before = plugin.get_property("PERF_COUNT")
        with pytest.raises(PropertyError):
            plugin.set_property({"PERF_COUNT": not before, "NO_SUCH_PROPERTY": 1})
        assert plugin.get_property("PERF_COUNT") == before

    def test_configuration_is_layered(self, plugin: Plugin) -> None:
        if not plugin.declares("PERF_COUNT"):
            pytest.skip("the device has no PERF_COUNT")
        case, model = next(self.supported(plugin))

        def counted(**config: Any) -> bool:
            request = self.compiled(plugin, model, **config).create_infer_request()
            request.infer(case.feeds[0])
            return bool(request.profiling_info)

        assert not counted()
        assert counted(PERF_COUNT=True)
        plugin.set_property({"PERF_COUNT": True})
        assert counted()
        assert not counted(PERF_COUNT=False)

    # -- requests -----------------------------------------------------------------------------------------------

    def test_inputs_are_not_written(self, plugin: Plugin) -> None:
        for case, model in self.supported(plugin):
            compiled = self.compiled(plugin, model)
            feed = {name: array.copy() for name, array in case.feeds[0].items()}
            compiled(feed)
            for name, array in case.feeds[0].items():
                np.testing.assert_array_equal(feed[name], array, err_msg=f"{case.name}: {name}")

    def test_inputs_may_be_read_only_and_strided(self, plugin: Plugin) -> None:
        for case, model in self.supported(plugin):
            compiled = self.compiled(plugin, model)
            feed = {}
            for name, array in case.feeds[0].items():
                wide = np.zeros((*array.shape, 2), array.dtype)
                wide[..., 0] = array
                wide.flags.writeable = False
                feed[name] = wide[..., 0]
            self.check(case, case.feeds[0], compiled(feed))

    def test_results_outlive_the_next_run(self, plugin: Plugin) -> None:
        for case, model in self.supported(plugin):
            request = self.compiled(plugin, model).create_infer_request()
            held = [(feed, request.infer(feed)) for feed in (*case.feeds, *case.feeds)]
            for feed, outputs in held:
                self.check(case, feed, outputs)

    def test_threads_get_what_serial_runs_get(self, plugin: Plugin) -> None:
        for case, model in self.supported(plugin):
            compiled = self.compiled(plugin, model)
            serial = [compiled(feed).arrays() for feed in case.feeds]
            failures: list[str] = []

            def work(
                compiled: CompiledModel = compiled,
                case: ContractCase = case,
                serial: list[tuple[np.ndarray, ...]] = serial,
                failures: list[str] = failures,
            ) -> None:
                request = compiled.create_infer_request()
                for _ in range(5):
                    for feed, wanted in zip(case.feeds, serial, strict=True):
                        try:
                            found = request.infer(feed).arrays()
                        except Exception as error:  # the thread must report, whatever it is
                            failures.append(f"{case.name}: {error!r}")
                            return
                        if any(f.tobytes() != w.tobytes() for f, w in zip(found, wanted, strict=True)):
                            failures.append(f"{case.name}: other bits than in a serial run")

            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not failures

    def test_outputs_by_name_and_position(self, plugin: Plugin) -> None:
        case, compiled = self.first(plugin)
        outputs = compiled(case.feeds[0])
        for position, port in enumerate(compiled.outputs):
            np.testing.assert_array_equal(outputs[port.name], outputs[position])

    def test_bad_inputs_are_named_and_the_request_stays_usable(self, plugin: Plugin) -> None:
        case, compiled = self.first(plugin)
        request = compiled.create_infer_request()
        feed = dict(case.feeds[0])
        name = next(iter(feed))
        missing = {key: value for key, value in feed.items() if key != name}
        misshaped = {**feed, name: np.zeros((7, 7, 7, 7, 7, 7), np.float32)}
        mistyped = {**feed, name: feed[name].astype(np.complex128)}
        for wrong in (missing, misshaped, mistyped):
            with pytest.raises(InferenceError, match=repr(name)):
                request.infer(wrong)
            self.check(case, feed, request.infer(feed))

    def test_counters(self, plugin: Plugin) -> None:
        if not plugin.declares("PERF_COUNT"):
            pytest.skip("the device has no PERF_COUNT")
        for case, model in self.supported(plugin):
            request = self.compiled(plugin, model, PERF_COUNT=True).create_infer_request()
            assert not request.profiling_info, case.name
            request.infer(case.feeds[0])
            rows = request.profiling_info
            assert rows, case.name
            for row in rows:
                assert row.node, case.name
                assert row.layer_type, case.name
                assert row.exec_type, case.name
                assert row.status in (EXECUTED, NOT_RUN, OPTIMIZED_OUT), case.name
                assert row.real_us >= 0, case.name
                assert row.cpu_us >= 0, case.name

    def test_a_failing_node_is_named(self, plugin: Plugin) -> None:
        model = read_model(self.model_that_fails())
        if not plugin.query_model(model, self.config).mask.all():
            pytest.skip("the device takes no Reshape to a shape given at run time")
        request = self.compiled(plugin, model).create_infer_request()
        with pytest.raises(HeteroError) as caught:
            request.infer({"x": np.zeros(6, np.float32), "shape": np.array([4, 2], np.int64)})
        assert "fails_here" in str(caught.value) or plugin.name in str(caught.value)
        outputs = request.infer({"x": np.arange(6, dtype=np.float32), "shape": np.array([3, 2], np.int64)})
        np.testing.assert_array_equal(outputs["y"], np.arange(6, dtype=np.float32).reshape(3, 2))

    def model_that_fails(self) -> onnx.ModelProto:
        graph = helper.make_graph(
            [helper.make_node("Reshape", ["x", "shape"], ["y"], name="fails_here")],
            "contract",
            [
                helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n"]),
                helper.make_tensor_value_info("shape", onnx.TensorProto.INT64, [2]),
            ],
            [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["a", "b"])],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
