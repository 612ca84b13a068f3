#include <trireme/base/check.hpp>
#include <trireme/plan/choices.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plan/deck_with.hpp"
#include "plan/machines.hpp"

namespace trireme::plan {
namespace {

using testing::deck_with;
using testing::installation;
using testing::machine_of;

std::string choice_error(const deck::Deck& deck, const Machine& machine) {
  try {
    expect_available(deck, machine);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "no error";
}

/// The words of a topic's notes; "": none.
std::string note(const std::string& topic, const deck::Config& config, const Machine& machine) {
  std::string words;
  for (const Note& found : notes(config, machine))
    if (found.topic == topic) words += found.words;
  return words;
}

TEST(Choices, SayThatOneActiveExpertDoesNotTrainTheRouter) {
  deck::Config config;
  config.model.experts.number = 4;
  const auto words = [&] { return note("experts", config, installation(DeviceKind::host)); };
  EXPECT_EQ(words(), "");
  config.model.experts.active = 1;
  EXPECT_NE(words().find("does not train the routers"), std::string::npos);
  config.model.experts.normalised = false;
  EXPECT_EQ(words(), "");
}

TEST(Choices, ReportALibraryMissingFromTheBuild) {
  const Machine cuda = installation(DeviceKind::cuda);
  const std::string no_nccl =
      " is not possible: this installation was built without NCCL; choose transport = \"mpi\", or "
      "configure with -DTRIREME_NCCL=ON";
  EXPECT_EQ(choice_error(deck_with("[parallel]\ntransport = \"nccl\""), cuda),
            "[parallel] transport = \"nccl\" (a.toml:17)" + no_nccl);
  EXPECT_EQ(choice_error(deck_with("[parallel]\ntensor = 1", {"parallel.transport=nccl"}), cuda),
            "[parallel] transport = \"nccl\" (command line)" + no_nccl);
  EXPECT_EQ(
      choice_error(deck_with("[precision]\ncompute = \"bf16\"\nattention = \"cudnn\""), cuda),
      "[precision] attention = \"cudnn\" (a.toml:18) is not possible: this installation was "
      "built without cuDNN; choose attention = \"auto\", or configure with -DTRIREME_CUDNN=ON");
}

TEST(Choices, ReportALibraryMissingFromTheMachineFile) {
  const Machine cuda = machine_of("cuda", "cublaslt", "tensor_cores", "mpi");
  EXPECT_EQ(
      choice_error(deck_with("[parallel]\ntransport = \"nccl\""), cuda),
      "[parallel] transport = \"nccl\" (a.toml:17) is not possible: box (m.toml) has no NCCL; "
      "choose transport = \"mpi\", or set [software] transport = \"nccl\" in m.toml if the "
      "machine has it");
  const deck::Deck cudnn = deck_with("[precision]\ncompute = \"bf16\"\nattention = \"cudnn\"");
  EXPECT_EQ(choice_error(cudnn, cuda),
            "[precision] attention = \"cudnn\" (a.toml:18) is not possible: box (m.toml) has no "
            "cuDNN; choose attention = \"auto\", or set [software] attention = \"cudnn\" in m.toml "
            "if the machine has it");
  const deck::Deck cores =
      deck_with("[precision]\ncompute = \"bf16\"\nattention = \"tensor_cores\"");
  EXPECT_EQ(choice_error(cores, cuda), "no error");
  EXPECT_EQ(
      choice_error(cores, machine_of("hip", "portable", "portable", "nccl")),
      "[precision] attention = \"tensor_cores\" (a.toml:18) is not possible: box (m.toml) has "
      "no kernels for tensor cores with kind = \"hip\"; choose attention = \"auto\"");
}

TEST(Choices, AcceptAvailableLibrariesAndHosts) {
  const Machine all = machine_of("cuda", "cublaslt", "cudnn", "nccl");
  const Machine host = installation(DeviceKind::host);
  for (const char* keys : {"[parallel]\ntransport = \"auto\"", "[parallel]\ntransport = \"mpi\"",
                           "[parallel]\ntransport = \"nccl\"",
                           "[precision]\ncompute = \"bf16\"\nattention = \"tensor_cores\"",
                           "[precision]\ncompute = \"bf16\"\nattention = \"cudnn\""}) {
    EXPECT_EQ(choice_error(deck_with(keys), all), "no error") << keys;
    EXPECT_EQ(choice_error(deck_with(keys), host), "no error") << keys;
  }
}

TEST(Choices, DeckAndMachineDetermineTheTransport) {
  const Machine nccl = machine_of("cuda", "portable", "portable", "nccl");
  const Machine mpi = machine_of("cuda", "portable", "portable", "mpi");
  deck::Config config;
  deck::ParallelConfig& parallel = config.parallel;
  EXPECT_TRUE(uses_nccl(parallel, nccl));
  EXPECT_EQ(transport(parallel, nccl), schedule::Transport::ordered_groups);
  EXPECT_FALSE(uses_nccl(parallel, mpi));
  EXPECT_EQ(transport(parallel, mpi), schedule::Transport::independent_channels);
  parallel.share_devices = true;
  EXPECT_FALSE(uses_nccl(parallel, nccl)) << "NCCL does not serve two ranks on one device";
  parallel.share_devices = false;
  parallel.transport = TransportKind::mpi;
  EXPECT_FALSE(uses_nccl(parallel, nccl));
  parallel.transport = TransportKind::nccl;
  EXPECT_TRUE(uses_nccl(parallel, nccl));
  EXPECT_EQ(note("transport", config, nccl), "NCCL, between devices");
  EXPECT_NE(note("transport", config, Machine{}).find("no effect"), std::string::npos);
}

TEST(Choices, OffloadingNeedsSeparateDeviceMemory) {
  deck::Config config;
  deck::ParallelConfig& parallel = config.parallel;
  parallel.offload = Offload::optimizer;
  const Machine cuda = installation(DeviceKind::cuda);
  EXPECT_TRUE(offloads_optimizer(parallel, cuda));
  EXPECT_FALSE(offloads_activations(parallel, cuda));
  EXPECT_FALSE(offloads_optimizer(parallel, Machine{}));
  EXPECT_EQ(note("offload", config, cuda),
            "optimizer: the optimizer's state is in the host's memory");
  EXPECT_NE(note("offload", config, Machine{}).find("no effect"), std::string::npos);
  parallel.offload = Offload::both;
  EXPECT_TRUE(offloads_optimizer(parallel, cuda) && offloads_activations(parallel, cuda));
  parallel.offload = Offload::none;
  EXPECT_EQ(note("offload", config, cuda), "");
}

TEST(Choices, NoteTheKernelsOfPackedDocuments) {
  const Machine host = installation(DeviceKind::host);
  const Machine all = machine_of("cuda", "cublaslt", "cudnn", "nccl");
  deck::Config config;
  config.precision.compute = DType::bf16;
  EXPECT_EQ(note("attention", config, all), "");
  config.model.packing = Packing::documents;
  EXPECT_NE(note("attention", config, all).find("without warpgroups"), std::string::npos);
  EXPECT_EQ(note("attention", config, host), "");
  config.precision.compute = DType::fp32;
  EXPECT_EQ(note("attention", config, all), "");
}

TEST(Choices, NoteTheEffectivePrecision) {
  const Machine host = installation(DeviceKind::host);
  const Machine all = machine_of("cuda", "cublaslt", "cudnn", "nccl");
  deck::Config config;
  deck::PrecisionConfig& precision = config.precision;
  EXPECT_EQ(note("tf32", config, all), "");
  EXPECT_EQ(note("attention", config, all), "");
  precision.tf32 = true;
  precision.attention = AttentionKind::cudnn;
  EXPECT_EQ(note("tf32", config, all), "matrix products round their factors to 11 bits");
  EXPECT_EQ(note("tf32", config, host),
            "no effect: the matrix products of this installation are not by cuBLASLt");
  EXPECT_EQ(note("attention", config, all), "cuDNN, whose gradients take S^2 numbers per head");
  EXPECT_EQ(note("attention", config, host),
            "cudnn, which has no effect: the kernels of this installation run on the host");
  EXPECT_EQ(note("products", config, all), "");
  precision.products = Products::fp8;
  precision.compute = DType::bf16;
  EXPECT_EQ(note("products", config, host),
            "fp8, computed in fp32 on hosts: the same numbers, not faster");
  Machine fast = all;
  EXPECT_NE(note("products", config, fast).find("has no [device] peak_fp8"), std::string::npos);
  fast.device.peak_fp8 = 2e15;
  EXPECT_EQ(note("products", config, fast), "fp8 in the layers");
}

}  // namespace
}  // namespace trireme::plan
