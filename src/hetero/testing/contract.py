"""The contract suite; `hetero.testing` shows how to run it on a device."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from ..artifact.payload import PayloadReader
from ..artifact.reader import open_artifact
from ..base.log import LEVELS
from ..base.properties import PROPERTIES
from ..compiling.hetero_model import schedule_of
from ..compiling.importing import import_model
from ..compiling.on_device import compile_on
from ..errors import DeviceUnavailable, HeteroError, InferenceError, NotSupported, PropertyError, UnsupportedModel
from ..model.model import Model
from ..model.read import read_model
from ..plugin.caller import configure, query
from ..plugin.contract import CompiledModel, Plugin, Support
from ..plugin.executor import DeviceExecutors
from ..plugin.profile import EXECUTED, NOT_RUN, OPTIMIZED_OUT
from ..plugin.tensor import Outputs
from ..runtime.schedule import ScheduleRunner
from .cases import ContractCase, make_model, standard_cases

__all__ = ["PluginContract"]


class PluginContract:
    """Base class of a device's tests. Override the fixture `plugin`; override `cases` and `config` where necessary."""

    rtol = 1e-4
    atol = 1e-5
    """Tolerances of results against NumPy."""

    config: Mapping[str, Any] = {}
    """Properties that the suite passes to every query and compilation, for devices that require some."""

    @pytest.fixture
    def plugin(self) -> Plugin:
        raise NotImplementedError("override the fixture `plugin` to return the plugin under test")

    def cases(self) -> tuple[ContractCase, ...]:
        """The models that the suite runs. Each test uses the cases that the device supports as a whole."""
        return standard_cases()

    # -- helpers ------------------------------------------------------------------------------------------------

    def supported(self, plugin: Plugin) -> list[tuple[ContractCase, Model]]:
        """The cases that the device supports as a whole. Skips the test if there are none; `test_supports_a_case`
        reports that."""
        cases = [(case, read_model(case.model)) for case in self.cases()]
        found = [(case, model) for case, model in cases if plugin.query_model(model, self.config).mask.all()]
        if not found:
            pytest.skip("the device supports none of the cases; see test_supports_a_case")
        return found

    def first_model(self, plugin: Plugin) -> Model:
        return self.supported(plugin)[0][1]

    def first(self, plugin: Plugin) -> tuple[ContractCase, CompiledModel]:
        case, model = self.supported(plugin)[0]
        return case, self.compiled(plugin, model)

    def compiled(self, plugin: Plugin, model: Model, **config: Any) -> CompiledModel:
        return compile_on(configure(plugin, {**self.config, **config}), model)

    def check(self, case: ContractCase, feed: Mapping[str, np.ndarray], outputs: Outputs) -> None:
        expected = case.expected(feed)
        assert set(outputs.keys()) == set(expected), case.name
        for name, array in expected.items():
            found = outputs[name]
            assert isinstance(found, np.ndarray), f"{case.name}: {name} is a {type(found).__name__}"
            assert found.dtype == array.dtype, f"{case.name}: {name}"
            assert found.shape == array.shape, f"{case.name}: {name}"
            np.testing.assert_allclose(found, array, self.rtol, self.atol, err_msg=f"{case.name}: {name}")

    # -- query --------------------------------------------------------------------------------------------------

    def test_supports_a_case(self, plugin: Plugin) -> None:
        refusals = []
        for case in self.cases():
            model = read_model(case.model)
            reasons = plugin.query_model(model, self.config).reasons
            if not reasons:
                return
            node = min(reasons)
            refusals.append(f"  {case.name}: node {model.key_of(node)!r}: {reasons[node]}")
        pytest.fail(
            f"{plugin.name} supports none of the {len(refusals)} models of the suite as a whole. The tests of "
            "compiled models are skipped.\n"
            "Override `cases` in the test class to return models that the device supports (see ContractCase).\n"
            "The first rejected node of each model:\n" + "\n".join(refusals),
            pytrace=False,
        )

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
            imported = import_model(PayloadReader(open_artifact(stream.getvalue())), configure(plugin, self.config))
            assert imported.inputs == compiled.inputs, case.name
            assert imported.outputs == compiled.outputs, case.name
            for feed, wanted in zip(case.feeds, expected, strict=True):
                found = imported(feed).arrays()
                assert [array.tobytes() for array in found] == [array.tobytes() for array in wanted], case.name

    def test_compile_names_the_unsupported_node(self, plugin: Plugin) -> None:
        """For devices that reject nodes in `Plugin.compile_model` as well. hetero queries the others first."""
        model = read_model(self.model_with_unknown_operator())
        try:
            self.compiled(plugin, model)
        except (UnsupportedModel, NotSupported) as error:
            refusal = error
        except HeteroError:
            if plugin.refuses_when_compiling:
                raise
            pytest.skip("the device rejects nodes only in query_model")
        else:
            assert not plugin.refuses_when_compiling, "refuses_when_compiling is True, but compile_model did not raise"
            pytest.skip("the device rejects nodes only in query_model")
        assert "mystery" in str(refusal)
        # A device that runs over others names those.
        refusing = getattr(refusal, "unsupported", {}).get("mystery", ())
        assert plugin.name in str(refusal) or (refusing and all(name in str(refusal) for name in refusing))

    def test_compiled_model_knows_its_device(self, plugin: Plugin) -> None:
        _, compiled = self.first(plugin)
        assert compiled.device.split(":")[0].split(".")[0] == plugin.name
        assert compiled.get_property("EXECUTION_DEVICES")
        with pytest.raises(PropertyError):
            compiled.get_property("NO_SUCH_PROPERTY")

    # -- properties ---------------------------------------------------------------------------------------------

    def valid_values(self, plugin: Plugin, name: str) -> Sequence[Any]:
        """Valid values of the writable property ``name``, including the default. For a property that hetero does not
        know, without ``choices`` and of a type other than bool and int, this is the default alone: override to add."""
        declared = plugin.declared(name)
        if name in self.config:
            return (self.config[name],)
        if name == "ISOLATION":
            return ("NONE",)  # a worker finds a plugin by its name, and this one may have been made by hand
        if name == "PLUGIN_TIMEOUT_MS":
            return (0, 600_000)
        if declared.choices is not None:
            return declared.choices
        if declared.type is bool:
            return (False, True)
        if declared.type is int:
            numbers = (0, 1, 2, 1000)
            return [value for value in numbers if declared.accepts is None or declared.accepts(value)]
        if name == "DEVICE_ID":
            return ("", *plugin.device_ids()[:3])
        if name == "CACHE_ENCRYPTION_CALLBACKS":
            return (None, (bytes, bytes))
        if name == "CACHE_DIR":
            return ("", "cache")
        return (declared.default,)

    def may_forward(self, plugin: Plugin, name: str) -> bool:
        """Whether a device that runs over others forwards ``name`` to one of them when it compiles."""
        return False

    def test_supported_properties_can_be_read(self, plugin: Plugin) -> None:
        names = plugin.get_property("SUPPORTED_PROPERTIES")
        assert "FULL_DEVICE_NAME" in names
        assert len(set(names)) == len(names)
        for name in names:
            declared = plugin.declared(name)
            assert isinstance(plugin.get_property(name), declared.type), name
            assert declared.doc, f"{name} is not documented"

    def test_writable_properties_are_set_read_and_compiled_with(self, plugin: Plugin) -> None:
        model = self.first_model(plugin)
        for name in plugin.get_property("SUPPORTED_PROPERTIES"):
            declared = plugin.declared(name)
            if not declared.writable:
                continue
            before = plugin.get_property(name)
            compiled = self.compiled(plugin, model)
            assert isinstance(compiled.get_property(name), declared.type), f"{name} of a compiled model"
            for value in self.valid_values(plugin, name):
                plugin.set_property({name: value})
                assert plugin.get_property(name) == value, name
                plugin.set_property({name: before})
                assert plugin.get_property(name) == before, name
                found = self.compiled(plugin, model, **{name: value}).get_property(name)
                assert isinstance(found, declared.type), f"{name} = {value!r}"
                # A number of 0 leaves the choice to the device.
                assert found == value or value == 0, f"{name} = {value!r}"

    def test_properties_refuse_what_they_are_not_declared_for(self, plugin: Plugin) -> None:
        model = self.first_model(plugin)
        for name in plugin.get_property("SUPPORTED_PROPERTIES"):
            # All other values are rejected. A read-only property even rejects its current value.
            value = object() if plugin.declared(name).writable else plugin.get_property(name)
            for action in self.property_setters(plugin, model, name, value):
                with pytest.raises(PropertyError, match=name):
                    action()

    def test_what_is_not_listed_is_refused(self, plugin: Plugin) -> None:
        model = self.first_model(plugin)
        listed = plugin.get_property("SUPPORTED_PROPERTIES")
        for name in PROPERTIES:
            if name in listed:
                continue
            with pytest.raises(PropertyError, match=name):
                plugin.get_property(name)
            assert not plugin.declares(name)
            default = PROPERTIES[name].default
            setters = self.property_setters(plugin, model, name, default)
            for action in setters[:1] if self.may_forward(plugin, name) else setters:
                with pytest.raises(PropertyError, match=name):
                    action()

    def property_setters(self, plugin: Plugin, model: Model, name: str, value: Any) -> list[Callable[[], Any]]:
        """Each call that sets a property. hetero checks the configuration before it calls `Plugin.query_model` and
        `Plugin.compile_model`."""
        return [
            lambda: plugin.set_property({name: value}),
            lambda: compile_on(configure(plugin, {**self.config, name: value}), model),
            lambda: query(configure(plugin, {**self.config, name: value}), model),
        ]

    def test_properties_of_a_compiled_model(self, plugin: Plugin) -> None:
        _, compiled = self.first(plugin)
        names = compiled.get_property("SUPPORTED_PROPERTIES")
        for name in names:
            value = compiled.get_property(name)
            if name in PROPERTIES:
                assert isinstance(value, PROPERTIES[name].type), name
        assert {name for name in plugin.get_property("SUPPORTED_PROPERTIES") if plugin.declares(name)} <= set(names)
        assert {"NETWORK_NAME", "EXECUTION_DEVICES", "LOADED_FROM_CACHE", "OPTIMAL_NUMBER_OF_INFER_REQUESTS"} <= {
            *names
        }
        with pytest.raises(PropertyError, match=r"NETWORK_NAME\b"):
            compiled.get_property("NETWORK_NAMES")

    def test_streams_are_as_many_as_asked_for(self, plugin: Plugin) -> None:
        if not plugin.declares("NUM_STREAMS"):
            pytest.skip("the device has no NUM_STREAMS")
        model = self.first_model(plugin)
        for streams in (1, 2, 3):
            compiled = self.compiled(plugin, model, NUM_STREAMS=streams)
            assert compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS") == streams
        name = "OPTIMAL_NUMBER_OF_INFER_REQUESTS"
        if name in plugin.get_property("SUPPORTED_PROPERTIES"):
            plugin.set_property({"NUM_STREAMS": 2})
            assert plugin.get_property(name) == self.compiled(plugin, model).get_property(name) == 2

    def test_ids_that_are_not_there_are_refused(self, plugin: Plugin) -> None:
        if not plugin.declares("DEVICE_ID"):
            pytest.skip("the device has no ids")
        model = self.first_model(plugin)
        for action in self.property_setters(plugin, model, "DEVICE_ID", "no_such_id"):
            with pytest.raises(DeviceUnavailable, match="no_such_id"):
                action()

    def test_messages_are_as_many_as_asked_for(self, plugin: Plugin, caplog: pytest.LogCaptureFixture) -> None:
        if not plugin.declares("LOG_LEVEL"):
            pytest.skip("the device has no LOG_LEVEL")
        model = self.first_model(plugin)
        # Devices may still compile models of earlier tests in the background.
        others = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}
        found = []
        for level in LEVELS:
            caplog.clear()
            query(configure(plugin, {**self.config, "LOG_LEVEL": level}), model)
            self.compiled(plugin, model, LOG_LEVEL=level)
            # Kinds instead of numbers: a device that compiles in the background may report it during the next level.
            records = [record for record in caplog.records if record.name.startswith("hetero.")]
            found.append({record.levelname for record in records if record.thread not in others})
        assert found[:3] == [set()] * 3  # nothing failed
        assert found[3] == {"INFO"}
        assert found[4] == {"INFO", "DEBUG"} <= found[5]
        assert not found[5] & {"ERROR", "WARNING"}

    def test_unknown_property_names_the_nearest(self, plugin: Plugin) -> None:
        known = plugin.get_property("SUPPORTED_PROPERTIES")
        misspelled = "FULL_DEVICE_NAMES"
        assert misspelled not in known
        setters = self.property_setters(plugin, self.first_model(plugin), misspelled, 1)
        for action in (lambda: plugin.get_property(misspelled), *setters):
            with pytest.raises(PropertyError, match=r"FULL_DEVICE_NAME\b"):
                action()

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
        case, model = self.supported(plugin)[0]

        def counted(**config: Any) -> bool:
            request = self.compiled(plugin, model, **config).create_infer_request()
            request.infer(case.feeds[0])
            return bool(request.profiling_info)

        assert not counted()
        assert counted(PERF_COUNT=True)
        plugin.set_property({"PERF_COUNT": True})
        assert counted()
        assert not counted(PERF_COUNT=False)

    def test_results_stay_on_the_device(self, plugin: Plugin) -> None:
        """For devices whose models have a `CompiledModel.memory_space`: a part's results, kept there, are the inputs
        of the next part."""
        for case, model in self.supported(plugin):
            for cut in range(1, model.num_nodes):
                halves = [np.arange(cut, dtype=np.int32), np.arange(cut, model.num_nodes, dtype=np.int32)]
                parts = model.extract_all(halves, ["first", "second"])
                compiled = [self.compiled(plugin, part) for part in parts]
                if any(entry.memory_space is None for entry in compiled):
                    pytest.skip("the device's models have no memory space")
                executors = DeviceExecutors(plugin.executors)
                schedule = schedule_of(model, list(zip(parts, compiled, strict=True)), executors)
                runner = ScheduleRunner(schedule)
                for feed in (*case.feeds, *case.feeds):
                    results = runner.run([feed[port.name] for port in model.inputs])
                    self.check(case, feed, Outputs({port.name: at for at, port in enumerate(model.outputs)}, results))

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
        assert list(outputs.keys()) == [port.name for port in compiled.outputs]
        assert all(value is outputs[position] for position, value in enumerate(outputs))

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
