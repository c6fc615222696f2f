"""Models with random weights as exporters write them: torch.onnx.export, with and without dynamo, and skl2onnx."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["FAMILIES", "PACKAGES", "exported"]

Made = tuple[bytes, list[dict[str, Any]]]
PACKAGES = {"torchvision": "torchvision", "transformers": "transformers", "sklearn": "skl2onnx"}


def exported(model: Any, inputs: list[dict[str, Any]], dynamo: bool, opset: int = 17) -> Made:
    """A torch module as a model of ONNX; the sizes in which the two sets of inputs differ are symbolic."""
    import torch

    model.eval()
    names = list(inputs[0])
    first = tuple([torch.from_numpy(x) for x in inputs[0].values()])
    axes = {
        name: {i: f"{name}_{i}" for i, (n, m) in enumerate(zip(x.shape, inputs[1][name].shape)) if n != m}
        for name, x in inputs[0].items()
    }
    out = io.BytesIO()
    torch.backends.mha.set_fastpath_enabled(False)  # fused layers, which the exporters do not know
    with torch.no_grad():
        if dynamo:
            dims = [dict.fromkeys(where, torch.export.Dim.DYNAMIC) for where in axes.values()]
            program = torch.onnx.export(
                model, first, input_names=names, dynamic_shapes=tuple(dims), dynamo=True, verbose=False
            )
            program.save(out)
        else:
            torch.onnx.export(
                model, first, out, input_names=names, dynamic_axes=axes, dynamo=False, opset_version=opset
            )
    return out.getvalue(), inputs


def _images(*shapes: tuple[int, ...]) -> list[dict[str, Any]]:
    r = np.random.RandomState(0)
    return [{"x": r.rand(*shape).astype(np.float32)} for shape in shapes]


def _seeded() -> None:
    import torch

    torch.manual_seed(0)


# -- torchvision ------------------------------------------------------------------------------------------------------


def _vision(name: str, size: int, dynamo: bool, **more: Any) -> Callable[[], Made]:
    def make() -> Made:
        from torchvision import models

        _seeded()
        model = models.get_model(name, weights=None, **more)
        wrapped = _Out(model) if "seg" in type(model).__module__ else model
        return exported(wrapped, _images((1, 3, size, size), (3, 3, size, size)), dynamo)

    return make


def _Out(model: Any) -> Any:
    """The "out" of a segmentation network, which gives a dict."""
    import torch

    class Out(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Any) -> Any:
            return self.model(x)["out"]

    return Out()


def _detection(name: str, size: int, dynamo: bool, **more: Any) -> Callable[[], Made]:
    """Boxes of one image; as networks with random weights find next to nothing, every score counts."""

    def make() -> Made:
        import torch
        from torchvision.models import detection

        _seeded()
        model = getattr(detection, name)(weights=None, weights_backbone=None, **more)

        class Boxes(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def forward(self, x: Any) -> Any:
                found = self.model([x[0]])[0]
                return tuple(found.values())

        images = _images((1, 3, size, size), (1, 3, size, size))
        return exported(Boxes(), images, dynamo, 18)

    return make


_CLASSIFIERS = {
    "alexnet": 224, "densenet121": 64, "efficientnet_v2_s": 64, "googlenet": 64, "inception_v3": 96, "mnasnet0_5": 64,
    "mobilenet_v2": 64, "mobilenet_v3_small": 64, "regnet_x_400mf": 64, "regnet_y_400mf": 64, "resnet18": 64,
    "resnext50_32x4d": 64, "shufflenet_v2_x0_5": 64, "squeezenet1_1": 64, "swin_t": 64, "swin_v2_t": 64, "vgg11_bn": 224,
    "maxvit_t": 224, "vit_b_32": 224, "convnext_tiny": 64, "wide_resnet50_2": 64, "efficientnet_b0": 64,
}  # fmt: skip
_SEGMENTERS = {"deeplabv3_mobilenet_v3_large": 64, "fcn_resnet50": 64, "lraspp_mobilenet_v3_large": 64}
_DETECTORS = {
    "ssdlite320_mobilenet_v3_large": 320,
    "fasterrcnn_mobilenet_v3_large_320_fpn": 128,
    "retinanet_resnet50_fpn": 96,
    "keypointrcnn_resnet50_fpn": 96,
    "maskrcnn_resnet50_fpn": 96,
    "fcos_resnet50_fpn": 96,
}


def _torchvision() -> dict[str, Callable[[], Made]]:
    out: dict[str, Callable[[], Made]] = {}
    for dynamo in (False, True):
        suffix = " dynamo" if dynamo else ""
        for name, size in _CLASSIFIERS.items():
            more = {"aux_logits": False, "init_weights": True} if name in ("googlenet", "inception_v3") else {}
            out[name + suffix] = _vision(name, size, dynamo, **more)
        for name, size in _SEGMENTERS.items():
            out[name + suffix] = _vision(name, size, dynamo, weights_backbone=None)
        for name, size in _DETECTORS.items():
            more = {"min_size": size, "max_size": size} if "rcnn" in name or "retina" in name or "fcos" in name else {}
            out[name + suffix] = _detection(name, size, dynamo, **more)
    return out


# -- transformers -----------------------------------------------------------------------------------------------------

_SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 99,
}


def _language(config: str, model: str, dynamo: bool, **sizes: Any) -> Callable[[], Made]:
    """A tiny model of tokens, with a mask."""

    def make() -> Made:
        import torch
        import transformers

        _seeded()
        made = getattr(transformers, model)(getattr(transformers, config)(**sizes))
        decoder = "decoder" in model.lower() or "T5" in model or "Bart" in model or "Marian" in model

        class First(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.model = made

            def forward(self, ids: Any, mask: Any) -> Any:
                more = {"decoder_input_ids": ids} if decoder else {}
                cache = {} if "Encoder" in model else {"use_cache": False}
                if not made.config.is_encoder_decoder and not getattr(made, "can_generate", lambda: False)():
                    cache = {}
                return made(input_ids=ids, attention_mask=mask, return_dict=False, **more, **cache)[0]

        r = np.random.RandomState(0)
        sets = []
        for rows, length in ((1, 9), (2, 14)):
            mask = np.ones((rows, length), np.int64)
            mask[-1, length - 2 * (rows - 1) :] = 0
            sets.append({"ids": r.randint(3, 90, (rows, length)), "mask": mask})
        return exported(First(), sets, dynamo, 18)

    return make


def _other(
    config: str, model: str, inputs: Callable[[int], dict[str, Any]], dynamo: bool, **sizes: Any
) -> Callable[[], Made]:
    """A tiny model of what `inputs` gives by the names of its arguments."""

    def make() -> Made:
        import torch
        import transformers

        _seeded()
        made = getattr(transformers, model)(getattr(transformers, config)(**sizes))
        sets = [inputs(0), inputs(1)]
        names = list(sets[0])

        class First(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.model = made

            def forward(self, *values: Any) -> Any:
                return made(**dict(zip(names, values, strict=True)), return_dict=False)[0]

        return exported(First(), sets, False, 18) if not dynamo else exported(_named(First(), names), sets, True)

    return make


def _named(module: Any, names: list[str]) -> Any:
    """A module with as many arguments as names: torch.export wants no starred ones."""
    import torch

    class One(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, a: Any) -> Any:
            return self.module(a)

    class Two(One):
        def forward(self, a: Any, b: Any) -> Any:  # type: ignore[override]
            return self.module(a, b)

    class Three(One):
        def forward(self, a: Any, b: Any, c: Any) -> Any:  # type: ignore[override]
            return self.module(a, b, c)

    return [One, Two, Three][len(names) - 1]()


def _floats(*shape: int) -> Any:
    return np.random.RandomState(0).randn(*shape).astype(np.float32)


def _tokens(*shape: int) -> Any:
    return np.random.RandomState(0).randint(3, 90, shape)


_VISION = {"image_size": 32, "patch_size": 8}
_CLIP = {
    "text_config": {**_SMALL, "max_position_embeddings": 20},
    "vision_config": {**{k: v for k, v in _SMALL.items() if k != "vocab_size"}, **_VISION},
    "projection_dim": 16,
}
_WAV = {"conv_dim": (16, 16), "conv_stride": (5, 2), "conv_kernel": (10, 3), "num_feat_extract_layers": 2}
_T5 = {
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 64,
    "num_layers": 2,
    "num_heads": 4,
    "vocab_size": 99,
    "decoder_start_token_id": 0,
}
_BART = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "vocab_size": 99, "max_position_embeddings": 40,
}  # fmt: skip
_LLAMA = {**_SMALL, "num_key_value_heads": 2, "max_position_embeddings": 64}
_LANGUAGE: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("BertConfig", "BertModel", _SMALL),
    "roberta": ("RobertaConfig", "RobertaForSequenceClassification", _SMALL),
    "distilbert": ("DistilBertConfig", "DistilBertModel", {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "vocab_size": 99}),
    "albert": ("AlbertConfig", "AlbertModel", {**_SMALL, "embedding_size": 16}),
    "electra": ("ElectraConfig", "ElectraForTokenClassification", {**_SMALL, "embedding_size": 16}),
    "deberta_v2": ("DebertaV2Config", "DebertaV2Model", {**_SMALL, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}),
    "mpnet": ("MPNetConfig", "MPNetModel", _SMALL),
    "modernbert": ("ModernBertConfig", "ModernBertModel", {**_SMALL, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99, "n_positions": 40}),
    "gpt_neox": ("GPTNeoXConfig", "GPTNeoXForCausalLM", _SMALL),
    "opt": ("OPTConfig", "OPTForCausalLM", {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 64, "vocab_size": 99, "word_embed_proj_dim": 32}),
    "bloom": ("BloomConfig", "BloomForCausalLM", {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99}),
    "llama": ("LlamaConfig", "LlamaForCausalLM", _LLAMA),
    "mistral": ("MistralConfig", "MistralForCausalLM", {**_LLAMA, "sliding_window": 8}),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", _LLAMA),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {**_LLAMA, "head_dim": 8}),
    "gemma2": ("Gemma2Config", "Gemma2ForCausalLM", {**_LLAMA, "head_dim": 8}),
    "phi3": ("Phi3Config", "Phi3ForCausalLM", {**_LLAMA, "pad_token_id": 0}),
    "mixtral": ("MixtralConfig", "MixtralForCausalLM", {**_LLAMA, "num_local_experts": 4}),
    "t5": ("T5Config", "T5ForConditionalGeneration", _T5),
    "t5_encoder": ("T5Config", "T5EncoderModel", _T5),
    "bart": ("BartConfig", "BartForConditionalGeneration", _BART),
    "marian": ("MarianConfig", "MarianMTModel", {**_BART, "pad_token_id": 1, "decoder_start_token_id": 0}),
}  # fmt: skip
_OTHERS: dict[str, tuple[str, str, Callable[[int], dict[str, Any]], dict[str, Any]]] = {
    "vit": ("ViTConfig", "ViTModel", lambda n: {"pixel_values": _floats(1 + n, 3, 32, 32)}, {**_SMALL, **_VISION}),
    "deit": ("DeiTConfig", "DeiTModel", lambda n: {"pixel_values": _floats(1 + n, 3, 32, 32)}, {**_SMALL, **_VISION}),
    "dinov2": ("Dinov2Config", "Dinov2Model", lambda n: {"pixel_values": _floats(1 + n, 3, 32, 32)}, {**_SMALL, **_VISION}),
    "clip": (
        "CLIPConfig",
        "CLIPModel",
        lambda n: {"input_ids": _tokens(2 + n, 7), "pixel_values": _floats(1 + n, 3, 32, 32)},
        _CLIP,
    ),
    "segformer": (
        "SegformerConfig",
        "SegformerForSemanticSegmentation",
        lambda n: {"pixel_values": _floats(1 + n, 3, 64, 64)},
        {"hidden_sizes": [8, 16, 16, 32], "decoder_hidden_size": 16, "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 2, 4]},
    ),
    "whisper": (
        "WhisperConfig",
        "WhisperModel",
        lambda n: {"input_features": _floats(1 + n, 8, 60), "decoder_input_ids": _tokens(1 + n, 5 + n)},
        {**_BART, "num_mel_bins": 8, "max_source_positions": 30, "max_target_positions": 20, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1},
    ),
    "wav2vec2": (
        "Wav2Vec2Config",
        "Wav2Vec2ForCTC",
        lambda n: {"input_values": _floats(1 + n, 400 + 200 * n)},
        {**_SMALL, **_WAV, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2},
    ),
    "yolos": (
        "YolosConfig",
        "YolosForObjectDetection",
        lambda n: {"pixel_values": _floats(1 + n, 3, 32, 32)},
        {**_SMALL, "image_size": [32, 32], "patch_size": 8, "num_detection_tokens": 5},
    ),
}  # fmt: skip


def _transformers() -> dict[str, Callable[[], Made]]:
    out: dict[str, Callable[[], Made]] = {}
    for dynamo in (False, True):
        suffix = " dynamo" if dynamo else ""
        for name, (config, model, sizes) in _LANGUAGE.items():
            out[name + suffix] = _language(config, model, dynamo, **sizes)
        for name, (config, model, inputs, sizes) in _OTHERS.items():
            out[name + suffix] = _other(config, model, inputs, dynamo, **sizes)
    return out


# -- scikit-learn -----------------------------------------------------------------------------------------------------

_OPSETS = {"": 18, "ai.onnx.ml": 3}


def _data() -> tuple[Any, dict[str, Any]]:
    """Rows of five numbers, and what is to be learnt of them: two classes, three, three with names, and a number."""
    r = np.random.RandomState(0)
    x = r.randn(120, 5).astype(np.float32)
    three = np.digitize(x[:, 0] + 0.3 * x[:, 1], [-0.5, 0.5])
    names = np.array(["red", "green", "blue"])[three]
    return x, {"two": (x[:, 0] > 0) * 1, "three": three, "names": names, "number": x @ r.randn(5), "": None}


def _estimator(path: str, target: str, scaled: bool = False, **options: Any) -> Callable[[], Made]:
    """An estimator by its name inside scikit-learn, behind a scaler if `scaled`."""

    def make() -> Made:
        from skl2onnx import to_onnx
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        module, _, name = path.rpartition(".")
        x, targets = _data()
        x = abs(x) if "Multinomial" in name or "Poisson" in name else x
        y = targets[target]
        y = abs(y) if "Poisson" in name else y
        one = getattr(__import__(f"sklearn.{module}", fromlist=[name]), name)(**options)
        model = make_pipeline(StandardScaler(), one) if scaled else one
        model.fit(x, y)
        made = to_onnx(model, x[:1], target_opset=_OPSETS)
        return made.SerializeToString(), [{"X": x[:40]}, {"X": x[:7]}]

    return make


def _columns() -> Made:
    """A table of numbers and categories, imputed, scaled, encoded, and voted on by trees."""
    import pandas as pd
    from skl2onnx import to_onnx
    from sklearn.compose import ColumnTransformer
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    x, targets = _data()
    kinds = np.array(["s", "m", "l"], object)[targets["three"]]
    table = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": kinds})
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    steps = [("n", numbers, ["a", "b"]), ("c", OneHotEncoder(handle_unknown="ignore"), ["c"])]
    model = make_pipeline(ColumnTransformer(steps), RandomForestClassifier(5, random_state=0))
    model.fit(table, targets["names"])
    data = to_onnx(model, table[:1], target_opset=_OPSETS).SerializeToString()
    feeds = {name: table[[name]].to_numpy() for name in table}
    return data, [{name: v[:n] for name, v in feeds.items()} for n in (40, 7)]


def _encoder(name: str) -> Callable[[], Made]:
    """Texts as numbers, and a linear model of them."""

    def make() -> Made:
        from skl2onnx import to_onnx
        from skl2onnx.common.data_types import StringTensorType
        from sklearn import linear_model, pipeline, preprocessing

        texts = np.array([["red", "s"], ["green", "m"], ["blue", "l"], ["red", "l"]] * 10, dtype=object)
        model = pipeline.make_pipeline(getattr(preprocessing, name)(), linear_model.LogisticRegression())
        model.fit(texts, np.arange(40) % 2)
        made = to_onnx(model, initial_types=[("X", StringTensorType([None, 2]))], target_opset=_OPSETS)
        return made.SerializeToString(), [{"X": texts[:12]}, {"X": texts[:5]}]

    return make


def _sklearn() -> dict[str, Callable[[], Made]]:
    out: dict[str, Callable[[], Made]] = {"columns": _columns}
    out |= {name: _encoder(name) for name in ("OneHotEncoder", "OrdinalEncoder")}
    for path, target, scaled, options in (
        ("linear_model.LogisticRegression", "names", True, {}),
        ("linear_model.SGDClassifier", "three", False, {"loss": "log_loss"}),
        ("linear_model.Lasso", "number", True, {}),
        ("linear_model.PoissonRegressor", "number", False, {}),
        ("svm.SVC", "three", True, {}),
        ("svm.SVC", "two", False, {"kernel": "poly", "probability": True}),
        ("svm.NuSVC", "names", False, {"kernel": "sigmoid"}),
        ("svm.LinearSVC", "three", False, {}),
        ("svm.SVR", "number", True, {}),
        ("svm.OneClassSVM", "", False, {}),
        ("tree.DecisionTreeClassifier", "three", False, {}),
        ("ensemble.RandomForestClassifier", "names", False, {"n_estimators": 10}),
        ("ensemble.ExtraTreesClassifier", "three", False, {"n_estimators": 10}),
        ("ensemble.GradientBoostingClassifier", "three", False, {"n_estimators": 10}),
        ("ensemble.GradientBoostingRegressor", "number", False, {"n_estimators": 10}),
        ("ensemble.AdaBoostClassifier", "three", False, {"n_estimators": 5}),
        ("ensemble.BaggingClassifier", "two", False, {"n_estimators": 4}),
        ("ensemble.IsolationForest", "", False, {"n_estimators": 10}),
        ("neighbors.KNeighborsClassifier", "three", False, {}),
        ("naive_bayes.GaussianNB", "three", False, {}),
        ("naive_bayes.MultinomialNB", "three", False, {}),
        ("neural_network.MLPClassifier", "three", False, {"hidden_layer_sizes": (8,)}),
        ("cluster.KMeans", "", False, {"n_clusters": 3, "n_init": 2}),
        ("decomposition.PCA", "", True, {"n_components": 3}),
        ("mixture.GaussianMixture", "", False, {"n_components": 3}),
        ("discriminant_analysis.QuadraticDiscriminantAnalysis", "three", False, {}),
        ("preprocessing.PolynomialFeatures", "", True, {}),
        ("preprocessing.KBinsDiscretizer", "", False, {"encode": "onehot-dense"}),
        ("preprocessing.PowerTransformer", "", False, {}),
    ):
        name = path.rpartition(".")[2]
        key = f"{name} {' '.join([str(v) for v in options.values()])}" if name in out else name
        out[key] = _estimator(path, target, scaled, **options)
    return out


FAMILIES = {"torchvision": _torchvision(), "transformers": _transformers(), "sklearn": _sklearn()}
