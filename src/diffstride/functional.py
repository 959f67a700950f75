"""The pure functions behind the layers: no parameters, no state."""

from diffstride.core.blur import blur_pool as blur_pool
from diffstride.core.conv import diff_stride_conv as diff_stride_conv
from diffstride.core.interpolation import learned_resize as learned_resize
from diffstride.core.low_cut import frequency_low_cut as frequency_low_cut
from diffstride.core.per_example import padded as padded
from diffstride.core.polyphase import polyphase_sample as polyphase_sample
from diffstride.core.pooling import diff_stride as diff_stride
from diffstride.core.pooling import output_size as output_size
from diffstride.core.pooling import spectral_pool as spectral_pool
from diffstride.core.pooling import window as window
from diffstride.core.shape_adaptor import shape_adaptor as shape_adaptor
from diffstride.core.upsampling import diff_upsample as diff_upsample
from diffstride.core.upsampling import spectral_resize as spectral_resize
