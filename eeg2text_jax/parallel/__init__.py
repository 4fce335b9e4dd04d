"""Device mesh, sharding, programs of all arms, runs on several hosts; the configuration's section `parallel`."""

import dataclasses
from typing import Annotated

from eeg2text_jax.kinds import flag, one_of, pair, whole


@dataclasses.dataclass(frozen=True)
class DevicesSettings:
    """Section `parallel` of a judge's configuration."""

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
