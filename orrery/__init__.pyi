"""The public names.  They change only with a line in the changes and a version of notice; all else is internal."""

"""Networks: built by name, by a file or layer by layer."""

from planner.graph.computation_graph import ComputationGraph as ComputationGraph, Layer as Layer
from planner.graph.parameters import Parameter as Parameter
from planner.graph.shapes import IntervalMap as IntervalMap
from planner.models.builder import ModelBuilder as ModelBuilder
from planner.models.registry import (
    class_count as class_count,
    load_model as load_model,
    register_model as register_model,
)
from planner.operations.base import OperationBase as OperationBase

"""Clusters: devices, links and the time of kernels."""

from executor.lab.wiring import lab_cluster as lab_cluster
from hwprofiles.catalogue.cluster_catalogue import load_cluster as load_cluster
from hwprofiles.compute.compute_profile import ComputeProfile as ComputeProfile
from hwprofiles.compute.fused_kernels import attention_kernels as attention_kernels
from hwprofiles.compute.fused_times import fused_s as fused_s
from hwprofiles.compute.profile_file import load_profile as load_profile, profile_path as profile_path
from hwprofiles.devices.device_graph import DeviceGraph as DeviceGraph

"""Strategies: how every layer is split."""

from planner.layouts.configurations import Configuration as Configuration, all_configurations as all_configurations
from planner.layouts.mesh import Mesh as Mesh
from planner.strategies.named_strategies import named_strategy as named_strategy, spaces_of as spaces_of
from planner.strategies.pipeline_schedule import PipelineSchedule as PipelineSchedule
from planner.strategies.recomputation import recompute_of as recompute_of

"""Plans: a strategy with its price, and the tasks of one iteration."""

from planner.cost.conditions import Conditions as Conditions
from planner.cost.cost_model import CostModel as CostModel
from planner.memory.memory_policy import MemoryPolicy as MemoryPolicy
from planner.memory.peak_memory import peak_memory_bytes as peak_memory_bytes
from planner.plan.analysis import Analysis as Analysis, analyse as analyse
from planner.plan.lowered_plan import lower_plan as lower_plan, lowered as lowered
from planner.plan.make_plan import make_plan as make_plan
from planner.plan.plan import Plan as Plan
from planner.plan.plan_file import load_plan as load_plan, save_plan as save_plan
from planner.plan.plan_request import PlanRequest as PlanRequest

"""Simulation: the replay of a plan, or of any task graph."""

from planner.simulation.execution_models import build_program_graph as build_program_graph
from planner.simulation.memory_over_time import memory_curve as memory_curve
from planner.simulation.program_replay import Replay as Replay, replay as replay
from planner.simulation.steady_path import program_path as program_path
from reports.figures.figure_of import figure as figure
from simulator.engines.engine import simulate as simulate
from simulator.formats.graph_file import read_graph as read_graph, write_graph as write_graph
from simulator.graph.task_graph import TaskGraph as TaskGraph

"""Comparison: many plans for one question."""

from planner.plan.compare_strategies import compare as compare
from planner.plan.comparison import Comparison as Comparison
from reports.pages.comparison_page import write_comparison_page as write_comparison_page
from studies.oracle.oracle_request import OracleRequest as OracleRequest
from studies.oracle.projection import oracle as oracle
from studies.size.deadline import fewest_devices as fewest_devices
from studies.size.sized_point import Subject as Subject
from studies.size.training import TrainingRun as TrainingRun
from studies.streams.schedule_comparison import compare_schedules as compare_schedules
from studies.streams.stream_request import StreamRequest as StreamRequest
from studies.sweep.store import Store as Store
from studies.sweep.sweep_file import read_sweep as read_sweep
from studies.sweep.sweep_run import run_sweep as run_sweep
from studies.whatif.scenarios import Scenario as Scenario, whatif as whatif

"""Measurement: plans and machines at work; it needs torch."""

from executor.compression.registry import data_type as data_type
from executor.probe.device_probe import measure_device as measure_device
from executor.probe.layer_probe import LayerProbe as LayerProbe
from executor.probe.parts_to_measure import parts_of as parts_of
from executor.probe.probe_run import probe as probe
from executor.probe.probe_settings import ProbeSettings as ProbeSettings
from executor.probe.probed_profile import write_profile as write_profile
from executor.run.plan_run import run_plan as run_plan
from executor.runtime.devices import device_of as device_of
from executor.runtime.run_options import RunOptions as RunOptions
from executor.validation.validation_request import ValidationRequest as ValidationRequest
from executor.validation.validation_run import validate as validate

"""Errors: all that a user can cause."""

from groundwork.errors import (
    ConfigError as ConfigError,
    InfeasiblePlanError as InfeasiblePlanError,
    OrreryError as OrreryError,
    UnreachableError as UnreachableError,
)
