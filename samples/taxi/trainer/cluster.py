"""Which replica of the gang this process is, by TF_CONFIG."""

from __future__ import annotations

import json
import os


class Cluster:
    """`type` and `index` of this replica, and how many there are of each type. Without TF_CONFIG: a chief alone."""

    def __init__(self, config):
        self.members = config.get("cluster", {})
        self.job = config.get("job", {})
        task = config.get("task", {})
        self.type = task.get("type", "chief")
        self.index = int(task.get("index", 0))

    @classmethod
    def of_environment(cls):
        return cls(json.loads(os.environ.get("TF_CONFIG", "{}")))

    def call_master(self):
        """Call the chief `master` from now on, in TF_CONFIG too.

        An Estimator's master evaluates and exports; its chief leaves that to an evaluator. So nothing changes in a gang
        that was submitted with evaluators.
        """
        if "chief" in self.members and not int(self.job.get("evaluator_count", 0)):
            self.members["master"] = self.members.pop("chief")
            self.type = "master" if self.type == "chief" else self.type
            config = json.loads(os.environ["TF_CONFIG"])
            config["cluster"] = self.members
            config["task"]["type"] = self.type
            os.environ["TF_CONFIG"] = json.dumps(config)

    def as_chief(self):
        """The members, with the first one called `chief` whatever TF_CONFIG calls it."""
        return {"chief" if name == "master" else name: found for name, found in self.members.items()}

    @property
    def chief(self):
        return self.type in ("chief", "master")

    @property
    def servers(self):
        return len(self.members.get("ps", ()))

    @property
    def number(self):
        """0 for the chief, 1 and up for workers."""
        return 0 if self.chief else 1 + self.index
