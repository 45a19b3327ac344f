"""All faults that are planted into a target run."""

import faults_of_kernels
import faults_of_modules
import faults_of_runs
import faults_of_weights
from table_of_faults import FAULTS

__all__ = ["FAULTS", "faults_of_kernels", "faults_of_modules", "faults_of_runs", "faults_of_weights"]
