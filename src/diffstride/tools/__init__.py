"""Functions over any tree of modules."""

from diffstride.tools.optim import parameter_groups as parameter_groups
