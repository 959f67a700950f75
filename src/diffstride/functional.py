"""The pure functions behind the layers: no parameters, no state."""

from diffstride.core.conv import diff_stride_conv as diff_stride_conv
from diffstride.core.pooling import diff_stride as diff_stride
from diffstride.core.pooling import spectral_pool as spectral_pool
from diffstride.core.pooling import window as window
from diffstride.core.rule import output_size as output_size
