"""Device mesh, sharding, functions compiled for all arms, runs on several hosts; the settings of section `parallel`."""

import dataclasses
from typing import Annotated

from eeg2text_jax.kinds import flag, one_of, pair, whole


@dataclasses.dataclass(frozen=True)
class DevicesSettings:
    """Section `parallel` of the configuration of a judge (a model that scores predictions)."""

    arms: Annotated[str, one_of("auto", "vmap", "map")]
    mesh: Annotated[tuple[int, int], pair(whole(0, 1_000_000))]
    fsdp: Annotated[bool, flag()]


@dataclasses.dataclass(frozen=True)
class ParallelSettings(DevicesSettings):
    """Section `parallel` of a run's configuration."""

    wave: Annotated[int, whole(0, 1_000_000)]
    hosts: Annotated[str, one_of("one", "auto", "env")]
    startup: Annotated[int, whole(1, 86_400)]
    heartbeat: Annotated[int, whole(2, 3_600)]
