"""Convolutional networks that learn their own strides."""

from diffstride import functional as functional
from diffstride import models as models
from diffstride.layers import DiffStride1d as DiffStride1d
from diffstride.layers import DiffStride2d as DiffStride2d
from diffstride.layers import DiffStride3d as DiffStride3d
from diffstride.layers import DiffStrideConv1d as DiffStrideConv1d
from diffstride.layers import DiffStrideConv2d as DiffStrideConv2d
from diffstride.layers import DiffStrideConv3d as DiffStrideConv3d
from diffstride.layers import SpectralPool1d as SpectralPool1d
from diffstride.layers import SpectralPool2d as SpectralPool2d
from diffstride.layers import SpectralPool3d as SpectralPool3d
from diffstride.tools import cost as cost
from diffstride.tools import parameter_groups as parameter_groups
from diffstride.tools import soft_macs as soft_macs
from diffstride.tools import stride_penalty as stride_penalty
from diffstride.tools import stride_table as stride_table

__version__ = "0.1.0"
