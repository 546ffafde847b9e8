"""All doors."""

from command_doors import COMMAND_DOORS
from data_doors import DATA_DOORS
from model_doors import MODEL_DOORS

DOORS = [*DATA_DOORS, *MODEL_DOORS, *COMMAND_DOORS]
