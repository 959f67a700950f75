"""Thin modules around the functions of ``core``; 1d, 2d and 3d are names of one class."""

from diffstride.layers.conv import DiffStrideConv1d as DiffStrideConv1d
from diffstride.layers.conv import DiffStrideConv2d as DiffStrideConv2d
from diffstride.layers.conv import DiffStrideConv3d as DiffStrideConv3d
from diffstride.layers.conv import DiffStrideConvNd as DiffStrideConvNd
from diffstride.layers.conversion_record import apply_conversion as apply_conversion
from diffstride.layers.diffstride import DiffStride1d as DiffStride1d
from diffstride.layers.diffstride import DiffStride2d as DiffStride2d
from diffstride.layers.diffstride import DiffStride3d as DiffStride3d
from diffstride.layers.diffstride import DiffStrideNd as DiffStrideNd
from diffstride.layers.factory import downsample as downsample
from diffstride.layers.spectral_pool import SpectralPool1d as SpectralPool1d
from diffstride.layers.spectral_pool import SpectralPool2d as SpectralPool2d
from diffstride.layers.spectral_pool import SpectralPool3d as SpectralPool3d
from diffstride.layers.spectral_pool import SpectralPoolNd as SpectralPoolNd
from diffstride.layers.undo import Undo as Undo
from diffstride.layers.upsample import DiffUpsample1d as DiffUpsample1d
from diffstride.layers.upsample import DiffUpsample2d as DiffUpsample2d
from diffstride.layers.upsample import DiffUpsample3d as DiffUpsample3d
from diffstride.layers.upsample import DiffUpsampleNd as DiffUpsampleNd
from diffstride.layers.upsample import SpectralUpsample1d as SpectralUpsample1d
from diffstride.layers.upsample import SpectralUpsample2d as SpectralUpsample2d
from diffstride.layers.upsample import SpectralUpsample3d as SpectralUpsample3d
from diffstride.layers.upsample import SpectralUpsampleNd as SpectralUpsampleNd
