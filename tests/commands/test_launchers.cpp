#include <commands/training_runs.hpp>
#include <trireme/commands/launcher.hpp>

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

/// Launchers of other MPI libraries, which start every process as a job of its own.
namespace trireme::commands {
namespace {

using namespace commands::testing;
using Variables = std::map<std::string, std::string>;

constexpr const char* mpich = "MPICH 4.0.2";

std::optional<Launch> launch(const Variables& variables, const std::string& mpi = mpich) {
  return launched_with_others(
      [&](const char* name) -> const char* {
        const auto at = variables.find(name);
        return at == variables.end() ? nullptr : at->second.c_str();
      },
      mpi);
}

TEST(Launchers, AreRecognisedByTheirVariables) {
  struct Case {
    Variables variables;
    std::int64_t ranks;
    const char* launcher;
  };
  for (const Case& c : std::vector<Case>{
           {{{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "0"}}, 4, "Open MPI"},
           {{{"PMI_SIZE", "3"}, {"PMI_RANK", "0"}}, 3, "PMI"},
           {{{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "0"}},
            2,
            "srun"},
           {{{"SLURM_STEP_ID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_PROCID", "0"}}, 2, "srun"},
           {{{"FLUX_JOB_SIZE", "8"}, {"FLUX_TASK_RANK", "0"}}, 8, "Flux"},
           {{{"PALS_RANKID", "0"}, {"PALS_LOCAL_SIZE", "12"}}, 12, "PALS"},
           {{{"PALS_RANKID", "0"}, {"PALS_SIZE", "5"}}, 5, "PALS"},
           {{{"PALS_RANKID", "1"}}, 2, "PALS"},
           {{{"PMIX_RANK", "1"}}, 2, "PMIx"}}) {
    const auto found = launch(c.variables);
    ASSERT_TRUE(found) << c.launcher;
    EXPECT_EQ(found->ranks, c.ranks) << c.launcher;
    EXPECT_NE(found->launcher.find(c.launcher), std::string::npos) << found->launcher;
    EXPECT_TRUE(found->reports) << c.launcher;
  }
}

TEST(Launchers, OneProcessReports) {
  for (const auto& [size, rank] : std::vector<std::pair<std::string, std::string>>{
           {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
           {"PMI_SIZE", "PMI_RANK"},
           {"FLUX_JOB_SIZE", "FLUX_TASK_RANK"},
           {"PALS_SIZE", "PALS_RANKID"}})
    for (int i = 0; i < 4; ++i) {
      const auto found = launch({{size, "4"}, {rank, std::to_string(i)}});
      ASSERT_TRUE(found) << size;
      EXPECT_EQ(found->reports, i == 0) << rank << i;
    }
  EXPECT_FALSE(launch({{"PMIX_RANK", "0"}})) << "it cannot know";
  EXPECT_TRUE(launch({{"PMIX_RANK", "1"}})->reports);
  EXPECT_FALSE(launch({{"PMIX_RANK", "2"}})->reports);
}

TEST(Launchers, ASingleProcessIsNoForeignJob) {
  EXPECT_FALSE(launch({}));
  EXPECT_FALSE(launch({{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}}));
  EXPECT_FALSE(launch({{"PMI_SIZE", "1"}, {"PMI_RANK", "0"}}));
  EXPECT_FALSE(launch({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}));
  EXPECT_FALSE(launch({{"FLUX_JOB_SIZE", "1"}, {"FLUX_TASK_RANK", "0"}}));
  EXPECT_FALSE(launch({{"PALS_RANKID", "0"}, {"PALS_LOCAL_SIZE", "1"}}));
  EXPECT_FALSE(launch({{"PMI_SIZE", "many"}})) << "no number";
  EXPECT_FALSE(launch({{"PMI_SIZE", ""}, {"PMI_RANK", "-1"}}));
}

TEST(Launchers, ABatchScriptIsNoForeignJob) {
  const Variables batch{{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}};
  EXPECT_FALSE(launch(batch));
  Variables interactive = batch;  // the shell of salloc
  interactive["SLURM_STEP_ID"] = "4294967290";
  EXPECT_FALSE(launch(interactive));
  EXPECT_FALSE(launch({{"FLUX_JOB_SIZE", "4"}})) << "a script, not a task";
  EXPECT_FALSE(launch({{"PBS_JOBID", "7"}, {"PBS_NP", "4"}}));
}

TEST(Launchers, TheInnermostLauncherCounts) {
  Variables inner{{"SLURM_STEP_ID", "0"},
                  {"SLURM_STEP_NUM_TASKS", "4"},
                  {"SLURM_PROCID", "2"},
                  {"PMI_SIZE", "1"},
                  {"PMI_RANK", "0"}};
  EXPECT_FALSE(launch(inner)) << "mpiexec -n 1 within a step";
  inner["PMI_SIZE"] = "3";
  inner["SLURM_STEP_NUM_TASKS"] = "1";  // of mpiexec's proxies
  ASSERT_TRUE(launch(inner));
  EXPECT_EQ(launch(inner)->ranks, 3);
  // A program that a rank of one MPI starts with the mpiexec of another one.
  EXPECT_FALSE(launch({{"OMPI_COMM_WORLD_SIZE", "4"}, {"PMI_SIZE", "1"}, {"PMI_RANK", "0"}}));
  EXPECT_FALSE(launch({{"OMPI_COMM_WORLD_SIZE", "1"}, {"PMI_SIZE", "4"}, {"PMI_RANK", "3"}}));
  // Flux within Slurm.
  EXPECT_FALSE(launch({{"FLUX_JOB_SIZE", "1"},
                       {"FLUX_TASK_RANK", "0"},
                       {"SLURM_STEP_ID", "0"},
                       {"SLURM_STEP_NUM_TASKS", "2"}}));
}

TEST(Launchers, RemediesMatchTheLauncherAndTheLibrary) {
  const Variables step{{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}};
  EXPECT_NE(launch(step)->remedy.find("srun --mpi=pmi2"), std::string::npos);
  EXPECT_NE(launch(step, "Open MPI v5.0.3")->remedy.find("srun --mpi=pmix"), std::string::npos);
  const Variables task{{"FLUX_JOB_SIZE", "2"}, {"FLUX_TASK_RANK", "0"}};
  EXPECT_NE(launch(task)->remedy.find("flux run -o pmi=simple"), std::string::npos);
}

class ForeignLaunchers : public TrainingRuns {};

TEST_F(ForeignLaunchers, EveryEngineCommandRejectsThemAndChangesNothing) {
  const std::string foreign = "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=";
  for (const char* command : {"train", "eval", "generate", "bench"}) {
    SCOPED_TRACE(command);
    const std::string line = std::string(" trireme ") + command + " deck.toml";
    EXPECT_EQ(run(foreign + "0" + line), 2) << out();
    expect_one_error(
        {"Open MPI's mpiexec started 2 processes", "a job of 1 rank", "the mpiexec of "});
    EXPECT_EQ(run(foreign + "1" + line), 2) << out();
    EXPECT_EQ(err(), "") << "one process reports";
    EXPECT_FALSE(std::filesystem::exists(folder_.file("run")));
  }
  const std::string step = "SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0 ";
  EXPECT_EQ(run(step + "trireme train deck.toml"), 2);
  expect_one_error({"Slurm's srun started 2 processes", "srun --mpi=pm"});
}

TEST_F(ForeignLaunchers, RanksOfThisMpiRunInAnyEnvironment) {
  const std::string around = "SLURM_JOB_ID=7 SLURM_NTASKS=2 SLURM_PROCID=0 OMPI_COMM_WORLD_SIZE=4 ";
  EXPECT_EQ(run(around + train(2, "run.steps=1")), 0) << err();
  EXPECT_EQ(run(around + TRIREME_MPIEXEC " -n 1 " + train(1, "run.steps=1")), 0) << err();
  EXPECT_EQ(run("SLURM_JOB_ID=7 SLURM_NTASKS=2 SLURM_PROCID=0 " + train(1, "run.steps=1")), 0)
      << err();
}

}  // namespace
}  // namespace trireme::commands
