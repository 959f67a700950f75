"""The command `diffstride search`: its words, and what its help says."""

from argparse import ArgumentParser
from collections.abc import Callable

from diffstride.lab.training.command_line import read_recipe

HELP = """usage: diffstride search RECIPE [options]

Find good strides for a network that may cost only so much. There are four stages; the runs of each
are in runs/NAME:

  learn    short trainings, each with fixed strides, all of one cost: the first ones at random
           strides, the others where the losses so far are best. They are compared on a part of the
           training set that is held out
  compare  the best strides, and those of the beginning, are trained with as long as the recipe says
           and compared on the same part: the search keeps the better ones
  begin    a network with the beginning's strides is trained on the whole training set
  found    a network with the strides that were found is trained on the whole training set

The beginning is the strides of the recipe. Except with --stride_penalty, no strides move during a
training: every network has spectral poolings, whatever the --model.downsampling of the recipe is.
At the end the command prints both accuracies, and code that makes the network. The same
command again, or `diffstride resume runs/NAME`, goes on where it stopped.

  --macs_budget M     millions of multiply-accumulates that an example costs, or
  --ms_budget MS      milliseconds that a batch takes, or
  --stride_penalty λ  the weight of the paper's regulariser: there are no trials; strides learn
                      while a network trains, and their cost is whatever comes out.
                      If none of the three is given, the budget is what the beginning costs
  --trials N          how many short trainings; 12 unless given, each half as long
  --data.held_out F   the part of the training set to compare strides on; 0.25 unless given, and
                      with --data.group COLUMN no group on both sides
  --whole_strides     take whole strides that cost no more
  --jobs N            runs at a time; one for each core or GPU unless given. --gpus, --engine,
                      --address and --cores are those of `diffstride sweep --help`
  --name NAME         RECIPE-search-SEED unless given

All networks cost as much as the budget; the beginning's strides are changed by as little as that
needs. All other options are those of `diffstride train RECIPE --help`.

RECIPE is a config.yaml, the folder of a run, or one of"""
DESCRIPTION = "Find strides; `diffstride search --help` says how, and which options it has besides "
DESCRIPTION += "those of `train`. All may be left out; defaults are the recipe's."


def search(words: list[str], is_loaded: Callable[[], None], conclude: Callable[..., None]) -> int:
    """Search as words say, call ``is_loaded`` before anything takes long; return the exit code."""
    from diffstride.lab.sweeps import engines

    reader = ArgumentParser("diffstride search", add_help=False, allow_abbrev=False)
    reader.add_argument("--whole_strides", action="store_true")
    reader.add_argument("--trials", type=int)
    for name, told in engines.ARGUMENTS.items():
        reader.add_argument(name, **told)
    args, options = reader.parse_known_args(words)
    chosen = read_recipe("search", options, HELP, DESCRIPTION)
    if isinstance(chosen, int):
        return chosen
    from diffstride.lab.search import stages

    is_loaded()
    recipe, config = chosen
    trials = stages.TRIALS if args.trials is None else args.trials
    given = stages.Options(args.whole_strides, trials, engines.Options.of(args))
    stages.begin(config, recipe, given, conclude)
    return 0
