"""Networks in which every downsampling is an argument."""

from diffstride.models.audio import audio_cnn as audio_cnn
from diffstride.models.densenet import densenet121 as densenet121
from diffstride.models.efficientnet import efficientnet_b0 as efficientnet_b0
from diffstride.models.pretrained import from_pretrained as from_pretrained
from diffstride.models.pretrained import save_pretrained as save_pretrained
from diffstride.models.registry import create as create
from diffstride.models.registry import list_models as list  # noqa: F401
from diffstride.models.resnet import preact_resnet18 as preact_resnet18
from diffstride.models.resnet import preact_resnet56 as preact_resnet56
from diffstride.models.resnet import resnet18 as resnet18
from diffstride.models.signal import signal_cnn as signal_cnn
from diffstride.models.unet import unet as unet
