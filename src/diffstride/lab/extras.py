"""What the commands need besides the library, and how to install it."""

# Which extra has a module that training, data or reports need; the library needs torch alone.
EXTRAS = {
    "train": ("lightning", "rich", "tensorboard", "tomli", "tyro"),
    "data": ("PIL", "datasets", "sklearn", "tqdm"),
    "audio": ("soundfile", "soxr"),
    "sweep": ("ray",),
    "report": ("jinja2", "matplotlib", "numpy", "yaml"),
    "share": ("safetensors",),
    "export": ("onnx", "onnxruntime", "onnxscript"),
}


def advice(error: Exception, command: str) -> str | None:
    """How to install what a command needs, if that is what is wrong."""
    module = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    for extra, modules in EXTRAS.items():
        if module in modules:
            # Training, and what reads a run, needs all that `train` has.
            wanted = "report" if command in ("table", "report") else "train"
            wanted = extra if extra in ("audio", "sweep", "export") else wanted
            return f"`{command}` needs {module}: pip install 'diffstride[{wanted}]'"
    return None
