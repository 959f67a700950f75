"""Functions over any tree of modules."""

from diffstride.tools.budget import fit_budget as fit_budget
from diffstride.tools.budget import least_macs as least_macs
from diffstride.tools.conversion import ConversionReport as ConversionReport
from diffstride.tools.convert import convert as convert
from diffstride.tools.cost import Cost as Cost
from diffstride.tools.cost import cost as cost
from diffstride.tools.cost import soft_macs as soft_macs
from diffstride.tools.export import export_onnx as export_onnx
from diffstride.tools.freeze import freeze as freeze
from diffstride.tools.optim import parameter_groups as parameter_groups
from diffstride.tools.penalty import stride_penalty as stride_penalty
from diffstride.tools.stride_table import StrideTable as StrideTable
from diffstride.tools.stride_table import stride_table as stride_table
