"""A sweep on the workers of a Dask cluster is the one that is trained here."""

import os
from concurrent.futures import ThreadPoolExecutor

import dask
import pandas as pd
from distributed import LocalCluster

from dmlkit import data, sweeps, workers
from tests.training.tiny import TINY, share_glyphs

SECOND = {"distributed.worker.multiprocessing-method": "forkserver"}  # need not import torch


def test_a_sweep_on_a_cluster_is_the_local_one(tmp_path, monkeypatch, forks):
    data.load("glyphs", "train", **TINY.data_args)  # made, if they are not there
    for place in ("there", "here"):
        share_glyphs(tmp_path / place)

    def sweep(place, executor=None):
        monkeypatch.setenv("DMLKIT_CACHE", str(tmp_path / place))
        return sweeps.sweep(TINY, executor, device="cpu", progress=False, seed=[1, 2])

    monkeypatch.setattr("distributed.utils._forkserver_preload_set", True)  # by forks
    how = {"env": {"DMLKIT_CACHE": str(tmp_path / "there")}, "dashboard_address": None}
    how |= {"n_workers": 1, "threads_per_worker": 1, "processes": True}
    with LocalCluster(**how) as cluster, workers._client(cluster.scheduler_address) as client:
        with dask.config.set(SECOND):
            cluster.scale(2)
            client.wait_for_workers(2)
        there = sweep("there", client.get_executor(pure=False))
        monkeypatch.setenv("DMLKIT_SCHEDULER", cluster.scheduler_address)
        process = sweeps.default_executor().submit(os.getpid).result()
        assert process in client.run(os.getpid).values()
        monkeypatch.delenv("DMLKIT_SCHEDULER")
    with ThreadPoolExecutor(1) as thread:
        here = sweep("here", thread)
    pd.testing.assert_frame_equal(there.drop(columns="seconds"), here.drop(columns="seconds"))
