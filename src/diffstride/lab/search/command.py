"""The command `diffstride search`: its words, and what its help says."""

from collections.abc import Callable

from diffstride.lab.training.command_line import read_recipe

WHOLE = "--whole_strides"
HELP = f"""usage: diffstride search RECIPE [options] [{WHOLE}]

Find strides for a network at a cost, in three stages, each a run in runs/NAME:

  learn   strides are tried, all of them within the budget: every step of training has others,
          and a part of the training set that is held out tells which are best
  begin   a network with the beginning's strides is trained from scratch, for comparison
  found   a network with the strides that were found is trained from scratch

What is learned while strides move is disturbed by that: what counts are networks whose strides
stay. These are spectral poolings, whatever the --model.downsampling of the recipe is; its strides
are the beginning. In the end it prints both accuracies, and code that makes the network. The same
command again, or `diffstride resume runs/NAME`, goes on where it was.

  --macs_budget M     millions of multiply-accumulates that an example costs, or
  --ms_budget MS      milliseconds that a batch takes, or
  --stride_penalty λ  the weight of the paper's regulariser: the cost is what comes out.
                      Unless given, the budget is what the network costs at the beginning
  --data.held_out F   the part of the training set to compare strides on; 0.25 unless given, and
                      with --data.group COLUMN no group on both sides
  {WHOLE}     round what was found to whole strides that cost no more
  --name NAME         RECIPE-search-SEED unless given

Budgets are spent: beginning and found cost the same; the beginning is brought to the budget by the
least change of its strides. Learning has windows of the convention "tight", with which it costs
what fixed strides do. All other options are those of `diffstride train RECIPE --help`.

RECIPE is a config.yaml, the folder of a run, or one of"""
DESCRIPTION = f"Find strides; `diffstride search --help` tells how. Takes {WHOLE} and the options "
DESCRIPTION += "of `train`, which may be left out; defaults are the recipe's."


def search(words: list[str], is_loaded: Callable[[], None], conclude: Callable[..., None]) -> int:
    """Search as words say, call ``is_loaded`` before anything takes long; return the exit code."""
    options = [word for word in words if word != WHOLE]
    chosen = read_recipe("search", options, HELP, DESCRIPTION)
    if isinstance(chosen, int):
        return chosen
    from diffstride.lab.search import stages

    is_loaded()
    recipe, config = chosen
    stages.begin(config, recipe, len(options) < len(words), conclude)
    return 0
