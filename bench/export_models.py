"""Export real architectures with random weights from timm, torchvision and transformers, and a few written here, as a
benchmark of models that the project does not contain.

    python bench/export_models.py --to models                # all
    python bench/export_models.py --to models bert resnet    # those with one of these words in their name

Needs the extra ``exports``. Each model becomes NAME.onnx and its inputs NAME.npz. Files that are there are kept;
``--again`` writes them again. `bench/exported_models.py` runs them. A process of its own exports each model, so that
one failure does not stop the others. "Off": the largest difference between onnxruntime and PyTorch relative to the
largest value.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import logging
import multiprocessing
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from torch import Tensor, nn

# Libraries that look for a package ``kernels`` would find a benchmark of that name in this folder.
sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != Path(__file__).resolve().parent]

# The operators that torchvision registers shapes for when it is imported. Without its compiled library, as beside a
# PyTorch of another build, the import fails. No exported model runs one of them.
TORCHVISION_OPERATORS = (
    *("nms", "qnms", "roi_align", "_roi_align_backward", "ps_roi_align", "_ps_roi_align_backward", "roi_pool"),
    *("_roi_pool_backward", "ps_roi_pool", "_ps_roi_pool_backward", "qroi_align", "deform_conv2d"),
    "_deform_conv2d_backward",
)
IMAGE, SEQUENCE, PAST = 224, 128, 127

Arguments = dict[str, Tensor]
Case = tuple[nn.Module, Arguments]
Axes = dict[str, dict[int, str]]  # input -> axis -> the name of its size, where it may change


def import_torchvision() -> Any:
    try:
        import torchvision
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        for name in TORCHVISION_OPERATORS:
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float threshold) -> Tensor")
        import torchvision
    return torchvision


def image(size: int = IMAGE, name: str = "image") -> Arguments:
    return {name: torch.randn(1, 3, size, size)}


def tokens(vocabulary: int, length: int = SEQUENCE) -> Arguments:
    return {"input_ids": torch.randint(5, vocabulary, (1, length)), "attention_mask": torch.ones(1, length).long()}


class FirstOutputs(nn.Module):
    """A model that takes its inputs by position and returns those tensors of its result that are named."""

    def __init__(self, model: nn.Module, inputs: list[str], outputs: list[str]) -> None:
        super().__init__()
        self.model, self.inputs, self.outputs = model, inputs, outputs

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        result = self.model(**dict(zip(self.inputs, tensors, strict=True)))
        return tuple(result[name] for name in self.outputs)


class DecodeStep(nn.Module):
    """One token of a decoder with its cache as inputs, key and value of each layer, and as outputs."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        from transformers import DynamicCache

        cache = DynamicCache()
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        result = self.model(input_ids=input_ids, past_key_values=cache, use_cache=True)
        present = [tensor for layer in result.past_key_values.layers for tensor in (layer.keys, layer.values)]
        return (result.logits, *present)


def timm_image(name: str, size: int = IMAGE) -> Case:
    import timm

    return timm.create_model(name), image(size)


def torchvision_image(name: str, **options: Any) -> Case:
    return import_torchvision().models.get_model(name, weights=None, **options), image()


def torchvision_segmentation(name: str) -> Case:
    model = import_torchvision().models.get_model(name, weights=None, weights_backbone=None)
    inputs = image()
    return FirstOutputs(_Keyword(model), ["image"], ["out"]), inputs


class _Keyword(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        return self.model(image)


def transformers_model(config: str, model: str, **options: Any) -> tuple[nn.Module, Any]:
    """``config``, ``model``: classes of transformers. Four layers of the default widths, where not given otherwise."""
    import transformers

    made = getattr(transformers, config)(**options)
    made._attn_implementation = "sdpa" if getattr(transformers, model)._supports_sdpa else "eager"
    return getattr(transformers, model)(made), made


def text_encoder(config: str, model: str, output: str = "last_hidden_state", **options: Any) -> Case:
    made, settings = transformers_model(config, model, **options)
    inputs = tokens(settings.vocab_size)
    return FirstOutputs(made, list(inputs), [output]), inputs


def decoder(config: str, model: str, heads: int, width: int, **options: Any) -> Case:
    """``heads``, ``width``: of keys and values."""
    made, settings = transformers_model(config, model, **options)
    inputs = {"input_ids": torch.randint(5, settings.vocab_size, (1, 1))}
    for layer in range(settings.num_hidden_layers):
        for kind in ("key", "value"):
            inputs[f"past.{layer}.{kind}"] = torch.randn(1, heads, PAST, width)
    return DecodeStep(made), inputs


def prefill(config: str, model: str, **options: Any) -> Case:
    made, settings = transformers_model(config, model, use_cache=False, **options)
    inputs = tokens(settings.vocab_size)
    return FirstOutputs(made, list(inputs), ["logits"]), inputs


def t5_decoder(**options: Any) -> Case:
    """A prompt of 16 tokens over an encoded text."""
    made, settings = transformers_model("T5Config", "T5ForConditionalGeneration", use_cache=False, **options)
    inputs = {
        "decoder_input_ids": torch.randint(5, settings.vocab_size, (1, 16)),
        "encoder_hidden_states": torch.randn(1, SEQUENCE, settings.d_model),
    }

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.decoder, self.head = made.decoder, made.lm_head

        def forward(self, decoder_input_ids: Tensor, encoder_hidden_states: Tensor) -> Tensor:
            hidden = self.decoder(input_ids=decoder_input_ids, encoder_hidden_states=encoder_hidden_states)[0]
            return self.head(hidden)

    return Decoder(), inputs


def by_name(config: str, model: str, inputs: Arguments, output: str, part: str = "", **options: Any) -> Case:
    """A model, or its ``part``, with given inputs."""
    made = transformers_model(config, model, **options)[0]
    return FirstOutputs(made.get_submodule(part), list(inputs), [output]), inputs


class First(nn.Module):
    """The first result of a recurrent layer."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0]


def tagger() -> Case:
    lstm = nn.LSTM(128, 256, 2, batch_first=True, bidirectional=True)
    model = nn.Sequential(nn.Embedding(5000, 128), First(lstm), nn.Linear(512, 32))
    return model, {"input_ids": torch.randint(0, 5000, (1, 64))}


def image_generator() -> Case:
    """DCGAN: transposed convolutions from a single pixel."""
    layers: list[nn.Module] = []
    widths = (100, 256, 128, 64, 3)
    for number, (before, after) in enumerate(itertools.pairwise(widths)):
        layers.append(nn.ConvTranspose2d(before, after, 4, *((1, 0) if number == 0 else (2, 1))))
        layers += [nn.Tanh()] if after == 3 else [nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers), {"noise": torch.randn(1, 100, 1, 1)}


class UNet(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        widths = [width << level for level in range(4)]
        self.down = nn.ModuleList(self.block(*pair) for pair in itertools.pairwise([3, *widths]))
        pairs = list(itertools.pairwise(reversed(widths)))
        self.up = nn.ModuleList(nn.ConvTranspose2d(wide, narrow, 2, 2) for wide, narrow in pairs)
        self.merge = nn.ModuleList(self.block(wide, narrow) for wide, narrow in pairs)
        self.last = nn.Conv2d(width, 2, 1)

    @staticmethod
    def block(before: int, after: int) -> nn.Module:
        layers: list[nn.Module] = []
        for channels in (before, after):
            layers += [nn.Conv2d(channels, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
        return nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        skipped = []
        for block in self.down[:-1]:
            skipped.append(block(x))
            x = nn.functional.max_pool2d(skipped[-1], 2)
        x = self.down[-1](x)
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([up(x), skipped.pop()], 1))
        return self.last(x)


class Vocoder(nn.Module):
    """Audio from a spectrogram, as in HiFi-GAN: transposed convolutions, and dilated ones with skip connections."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(80, 128, 7, padding=3)
        self.up, self.residual = nn.ModuleList(), nn.ModuleList()
        for width, factor in zip((128, 64, 32), (8, 8, 4), strict=True):
            self.up.append(nn.ConvTranspose1d(width, width // 2, 2 * factor, factor, factor // 2))
            self.residual.append(
                nn.ModuleList(
                    nn.Conv1d(width // 2, width // 2, taps, dilation=d, padding=d * (taps - 1) // 2)
                    for taps in (3, 7, 11)
                    for d in (1, 3, 5)
                )
            )
        self.last = nn.Conv1d(16, 1, 7, padding=3)

    def forward(self, mel: Tensor) -> Tensor:
        x = self.first(mel)
        for up, layers in zip(self.up, self.residual, strict=True):
            x = up(nn.functional.leaky_relu(x, 0.1))
            for layer in layers:
                x = x + layer(nn.functional.leaky_relu(x, 0.1))
        return torch.tanh(self.last(nn.functional.leaky_relu(x)))


PLAIN: dict[str, tuple[Callable[[], Case], str, Axes]] = {
    "tagger": (tagger, "script", {}),
    "dcgan": (image_generator, "dynamo", {}),
    "unet": (lambda: (UNet(), image(256)), "script", {}),
    "vocoder": (lambda: (Vocoder(), {"mel": torch.randn(1, 80, 40)}), "script", {"mel": {2: "frames"}}),
}
"""Kinds that the three libraries do not have, or not small."""

TEXT: Axes = {"input_ids": {1: "sequence"}, "attention_mask": {1: "sequence"}}
FOUR = {"num_hidden_layers": 4}
BERT = functools.partial(text_encoder, **FOUR)
LLAMA = {
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "vocab_size": 8192,
    **FOUR,
}
T5 = {"num_layers": 4, "d_model": 512, "d_ff": 2048, "num_heads": 8, "d_kv": 64}

# Image size of the timm models whose windows or patches do not divide 224.
SIZES = {"crossvit_tiny_240": 240, "maxvit_rmlp_nano_rw_256": 256, "coatnet_nano_rw_224": 224}
TIMM = {
    "script": (
        *("mobileone_s1", "repvgg_a2", "regnety_008", "nfnet_l0", "hrnet_w18_small", "poolformer_s12"),
        *("semnasnet_100", "resnext50_32x4d", "ghostnet_100", "levit_128s", "mobilenetv2_100", "vit_tiny_patch16_224"),
        *("swin_tiny_patch4_window7_224", "mixer_s16_224", "densenet121", "dla34", "dpn68", "edgenext_small"),
        *("hardcorenas_a", "inception_v4", "maxvit_rmlp_nano_rw_256", "mobilevit_s", "pvt_v2_b0", "resnest26d"),
        *("rexnet_100", "selecsls42b", "skresnet18", "tinynet_a", "vgg11", "crossvit_tiny_240"),
        *("twins_svt_small", "fastvit_t8", "inception_v3", "tresnet_m", "xception41", "coat_tiny"),
    ),
    "dynamo": (
        *("resnet18", "convnext_tiny", "mobilenetv3_large_100", "efficientnet_b0", "efficientvit_b1"),
        *("vit_small_patch16_224", "deit_tiny_patch16_224", "resmlp_12_224", "gmlp_s16_224", "lcnet_100"),
        *("mnasnet_100", "res2net50_26w_4s", "seresnet50", "tf_efficientnetv2_b0", "visformer_small"),
    ),
}
TORCHVISION = {
    "shufflenet_v2_x1_0": (torchvision_image, "script"),
    "squeezenet1_1": (torchvision_image, "dynamo"),
    "googlenet": (functools.partial(torchvision_image, aux_logits=False, init_weights=False), "script"),
    "deeplabv3_mobilenet_v3_large": (torchvision_segmentation, "script"),
    "lraspp_mobilenet_v3_large": (torchvision_segmentation, "dynamo"),
    "fcn_resnet50": (torchvision_segmentation, "script"),
}
TRANSFORMERS: dict[str, tuple[Callable[[], Case], str, Axes]] = {
    "bert": (functools.partial(BERT, "BertConfig", "BertModel"), "script", TEXT),
    "distilbert": (functools.partial(text_encoder, "DistilBertConfig", "DistilBertModel", n_layers=4), "dynamo", TEXT),
    "albert": (
        functools.partial(
            *(BERT, "AlbertConfig", "AlbertModel"),
            hidden_size=768,
            intermediate_size=3072,
            num_attention_heads=12,
        ),
        "script",
        TEXT,
    ),
    "roberta": (functools.partial(BERT, "RobertaConfig", "RobertaModel"), "script", TEXT),
    "electra": (functools.partial(BERT, "ElectraConfig", "ElectraModel"), "dynamo", TEXT),
    "modernbert": (functools.partial(BERT, "ModernBertConfig", "ModernBertModel"), "script", TEXT),
    "deberta_v2": (
        functools.partial(
            *(BERT, "DebertaV2Config", "DebertaV2Model"),
            hidden_size=768,
            intermediate_size=3072,
            num_attention_heads=12,
            vocab_size=32000,
            relative_attention=True,
            position_buckets=256,
            pos_att_type=["p2c", "c2p"],
            norm_rel_ebd="layer_norm",
            share_att_key=True,
            position_biased_input=False,
        ),
        "script",
        {},
    ),
    "clip_text": (
        lambda: by_name("CLIPTextConfig", "CLIPTextModel", tokens(49408, 77), "last_hidden_state", **FOUR),
        "script",
        {},
    ),
    "gpt2_decode": (
        functools.partial(decoder, "GPT2Config", "GPT2LMHeadModel", 12, 64, n_layer=4),
        "script",
        {"past.": {2: "past"}},
    ),
    "llama_decode": (
        functools.partial(decoder, "LlamaConfig", "LlamaForCausalLM", 4, 64, **LLAMA),
        "script",
        {"past.": {2: "past"}},
    ),
    "llama_prefill": (functools.partial(prefill, "LlamaConfig", "LlamaForCausalLM", **LLAMA), "dynamo", TEXT),
    "t5_encoder": (functools.partial(text_encoder, "T5Config", "T5EncoderModel", **T5), "script", TEXT),
    "t5_decoder": (functools.partial(t5_decoder, **T5), "script", {"decoder_input_ids": {1: "sequence"}}),
    "wav2vec2": (
        lambda: by_name(
            *("Wav2Vec2Config", "Wav2Vec2Model", {"input_values": torch.randn(1, 16000)}, "last_hidden_state"), **FOUR
        ),
        "script",
        {"input_values": {1: "samples"}},
    ),
    "whisper_encoder": (
        lambda: by_name(
            *("WhisperConfig", "WhisperModel", {"input_features": torch.randn(1, 80, 3000)}, "last_hidden_state"),
            part="encoder",
        ),
        "script",
        {},
    ),
    "mixtral_decode": (
        functools.partial(
            *(decoder, "MixtralConfig", "MixtralForCausalLM", 4, 64),
            num_local_experts=8,
            experts_implementation="batched_mm",
            **LLAMA | {"hidden_size": 512, "intermediate_size": 1024, "num_attention_heads": 8},
        ),
        "script",
        {"past.": {2: "past"}},
    ),
    "mamba": (
        lambda: by_name(
            *("MambaConfig", "MambaModel", {"input_ids": torch.randint(5, 1000, (1, 48))}, "last_hidden_state"),
            hidden_size=256,
            num_hidden_layers=2,
            vocab_size=1000,
            use_cache=False,
        ),
        "script",
        {},
    ),
    "detr": (
        lambda: by_name(
            *("DetrConfig", "DetrForObjectDetection", image(256, "pixel_values"), "logits"),
            use_pretrained_backbone=False,
            encoder_layers=3,
            decoder_layers=3,
        ),
        "script",
        {},
    ),
    "segformer": (
        lambda: by_name("SegformerConfig", "SegformerForSemanticSegmentation", image(256, "pixel_values"), "logits"),
        "script",
        {"pixel_values": {2: "height", 3: "width"}},
    ),
    "vit": (
        lambda: by_name("ViTConfig", "ViTModel", image(name="pixel_values"), "last_hidden_state", **FOUR),
        "dynamo",
        {},
    ),
}
MODELS: dict[str, tuple[Callable[[], Case], str, Axes]] = {
    **{
        name: (functools.partial(timm_image, name, SIZES.get(name, IMAGE)), exporter, {})
        for exporter, names in TIMM.items()
        for name in names
    },
    **{name: (functools.partial(make, name), exporter, {}) for name, (make, exporter) in TORCHVISION.items()},
    **TRANSFORMERS,
    **PLAIN,
}
"""Name -> what makes the model and its inputs, which of PyTorch's exporters, and the axes that may change."""


@torch.no_grad()
def perturb(model: nn.Module) -> None:
    """Make parameters of equal values differ. Otherwise, a normalization or a layer scale that does nothing could be
    left out, and a layer that begins at zero hides what is before it."""
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if not tensor.is_floating_point() or tensor.numel() < 2 or tensor.min() != tensor.max():
            continue
        if name.endswith("running_var"):
            tensor.uniform_(0.8, 1.2)
        else:
            tensor.add_(torch.randn_like(tensor), alpha=0.02 if tensor.ndim > 1 else 0.1)


def export(name: str, to: Path) -> float:
    """Write a model and its inputs. Returns the difference of onnxruntime's results from PyTorch's."""
    make, exporter, axes = MODELS[name]
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, inputs = make()
    perturb(model.eval())
    names, path = list(inputs), to / f"{name}.onnx"
    dynamic = {key: value for key in names for begin, value in axes.items() if key.startswith(begin)}
    arguments = tuple(inputs.values())
    partial = path.with_suffix(f".{os.getpid()}.partial")  # another run can be exporting the same model
    with torch.no_grad():
        expected = model(*arguments)
        if exporter == "script":
            torch.onnx.export(
                model,
                arguments,
                partial,
                dynamo=False,
                input_names=names,
                dynamic_axes=dynamic,
                opset_version=17,
            )
        else:
            shapes = tuple(dynamic.get(key, {}) for key in names) if dynamic else None
            if shapes and isinstance(model, FirstOutputs | DecodeStep):
                shapes = (shapes,) if isinstance(model, FirstOutputs) else (shapes[0], shapes[1:])
            torch.onnx.export(
                model,
                arguments,
                partial,
                dynamo=True,
                input_names=names,
                dynamic_shapes=shapes,
                external_data=False,
                verbose=False,
            )
    session = onnxruntime.InferenceSession(partial, providers=["CPUExecutionProvider"])
    kept = {i.name for i in session.get_inputs()}
    arrays = {key: tensor.numpy() for key, tensor in inputs.items() if key in kept}
    found = session.run(None, arrays)
    np.savez(path.with_suffix(".npz"), **arrays)
    partial.rename(path)
    results = [expected] if isinstance(expected, Tensor) else expected
    return max(relative_difference(a, b.numpy()) for a, b in zip(found, results, strict=True))


def relative_difference(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-30))


def in_process(name: str, to: Path) -> None:
    begin = time.monotonic()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    try:
        off = export(name, to)
    except Exception as error:
        traceback.print_exc()
        print(f"{name}: {type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}")
        sys.exit(1)
    size = (to / f"{name}.onnx").stat().st_size / 1e6
    print(f"{name}: {MODELS[name][1]}, {size:.0f} MB, {time.monotonic() - begin:.0f} s, off {off:.1g}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="in the name of a model or of its exporter; default: all models")
    parser.add_argument("--to", type=Path, required=True, help="folder for the files")
    parser.add_argument("--again", action="store_true", help="also export models whose files are there")
    arguments = parser.parse_args()
    arguments.to.mkdir(parents=True, exist_ok=True)
    failed = []
    # A forked process finds the libraries imported.
    import_torchvision()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import timm  # noqa: F401
    import transformers  # noqa: F401

    context = multiprocessing.get_context("fork")
    for name, (_, exporter, _) in MODELS.items():
        if arguments.words and not any(word in name or word == exporter for word in arguments.words):
            continue
        if (arguments.to / f"{name}.onnx").exists() and not arguments.again:
            continue
        process = context.Process(target=in_process, args=(name, arguments.to))
        process.start()
        process.join()
        if process.exitcode:
            failed.append(name)
    if failed:
        sys.exit(f"not exported: {', '.join(failed)}")


if __name__ == "__main__":
    main()
