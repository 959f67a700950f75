"""Which extra has a module that a command needs; the library needs torch alone."""

from importlib.util import find_spec

EXTRAS = {
    "train": ("lightning", "rich", "tensorboard", "tomli", "torchmetrics", "tyro"),
    "data": ("PIL", "datasets", "sklearn", "tqdm"),
    "audio": ("soundfile", "soxr"),
    "sweep": ("ray",),
    "report": ("jinja2", "matplotlib", "numpy", "yaml"),
    "share": ("safetensors",),
    "export": ("onnx", "onnxruntime", "onnxscript"),
}


def install_advice(error: Exception, command: str) -> str | None:
    """Return how to install what a command needs, if that is what is wrong."""
    module = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    extra = next((extra for extra, modules in EXTRAS.items() if module in modules), None)
    if extra in ("train", "data", "report", "share"):  # training and predicting need all of `train`
        extra = "report" if command in ("table", "report") else "train"
    return extra and f"`{command}` needs {module}: pip install 'diffstride[{extra}]'"


def advice_for_help() -> str:
    """Return what to install before commands can run; nothing if it is there already."""
    needed = set(EXTRAS["train"]) - {"tomli"}  # which Python 3.10 alone needs
    if all(find_spec(module) for module in needed):
        return ""
    return (
        "\nMost commands need more than the library does, and it is not installed:\n"
        "pip install 'diffstride[train]'\n"
    )
