// Effects of a deck's choices on a machine, and notes about them for `check` and the log.
#include <trireme/plan/choices.hpp>

#include <trireme/base/check.hpp>

namespace trireme::plan {
namespace {

/// A remedy other than a change of the deck: a build with the library, or a key of the machine
/// file.
std::string or_install(const Machine& machine, const char* option, const char* key,
                       const char* word) {
  return machine.file.empty() ? text("or configure with -D", option, "=ON")
                              : text("or set [software] ", key, " = \"", word, "\" in ",
                                     machine.file, " if the machine has it");
}

std::string why(const Machine& machine, const char* library) {
  return machine.file.empty() ? text("this installation was built without ", library)
                              : text(machine.called(), " has no ", library);
}

}  // namespace

void expect_available(const deck::Deck& deck, const Machine& machine) {
  if (!machine.on_device()) return;
  const Machine::Software& has = machine.software;
  const AttentionKind attention = deck.config.precision.attention;
  check_usage(
      has.transport == TransportKind::nccl || deck.config.parallel.transport != TransportKind::nccl,
      deck.cite("parallel", "transport"), " is not possible: ", why(machine, "NCCL"),
      "; choose transport = \"mpi\", ", or_install(machine, "TRIREME_NCCL", "transport", "nccl"));
  check_usage(has.attention == AttentionKind::cudnn || attention != AttentionKind::cudnn,
              deck.cite("precision", "attention"), " is not possible: ", why(machine, "cuDNN"),
              "; choose attention = \"auto\", ",
              or_install(machine, "TRIREME_CUDNN", "attention", "cudnn"));
  check_usage(
      has.products == ProductLibrary::cublaslt || deck.config.precision.products != Products::fp8,
      deck.cite("precision", "products"), " is not possible: ", machine.called(),
      " does not multiply by cuBLASLt, the only library whose products of fp8 are used on "
      "devices; ",
      "choose products = \"compute\"");
  check_usage(has.attention != AttentionKind::portable || attention != AttentionKind::tensor_cores,
              deck.cite("precision", "attention"), " is not possible: ", machine.called(),
              " has no kernels for tensor cores with kind = \"", name_of(machine.device.kind),
              "\"; choose attention = \"auto\"");
}

bool uses_nccl(const deck::ParallelConfig& parallel, const Machine& machine) {
  if (machine.software.transport != TransportKind::nccl) return false;
  switch (parallel.transport) {
    case TransportKind::automatic:
      return !parallel.share_devices;
    case TransportKind::mpi:
      return false;
    case TransportKind::nccl:
      return true;
  }
  return false;
}

schedule::Transport transport(const deck::ParallelConfig& parallel, const Machine& machine) {
  return uses_nccl(parallel, machine) ? schedule::Transport::ordered_groups
                                      : schedule::Transport::independent_channels;
}

bool offloads_optimizer(const deck::ParallelConfig& parallel, const Machine& machine) {
  return machine.own_memory &&
         (parallel.offload == Offload::optimizer || parallel.offload == Offload::both);
}

bool offloads_activations(const deck::ParallelConfig& parallel, const Machine& machine) {
  return machine.own_memory &&
         (parallel.offload == Offload::activations || parallel.offload == Offload::both);
}

bool has_cudnn_gradient(const deck::PrecisionConfig& precision, const Machine& machine) {
  return machine.software.attention == AttentionKind::cudnn &&
         precision.attention == AttentionKind::cudnn;
}

namespace {

std::string transport_note(const deck::ParallelConfig& parallel, const Machine& machine) {
  if (!machine.on_device())
    return parallel.transport == TransportKind::nccl
               ? text("nccl, which has no effect: the kernels of ", machine.called(),
                      " run on the host, whose messages go by MPI")
               : "";
  return uses_nccl(parallel, machine) ? "NCCL, between devices" : "MPI, through the hosts' memory";
}

std::string offload_note(const deck::ParallelConfig& parallel, const Machine& machine) {
  if (parallel.offload == Offload::none) return "";
  if (!machine.own_memory)
    return text(name_of(parallel.offload), ", which has no effect: the kernels of ",
                machine.called(), " run on the host, whose memory holds all arrays");
  const char* what = "the optimizer's state and saved activations are";
  if (parallel.offload == Offload::optimizer) what = "the optimizer's state is";
  if (parallel.offload == Offload::activations) what = "saved activations are";
  return text(name_of(parallel.offload), ": ", what, " in the host's memory");
}

std::string tf32_note(const deck::PrecisionConfig& precision, const Machine& machine) {
  if (!precision.tf32) return "";
  return machine.software.products == ProductLibrary::cublaslt
             ? "matrix products round their factors to 11 bits"
             : text("no effect: the matrix products of ", machine.called(), " are not by cuBLASLt");
}

std::string products_note(const deck::PrecisionConfig& precision, const Machine& machine) {
  if (precision.products == Products::compute) {
    const bool known = precision.compute == DType::bf16 && !machine.software.bf16.empty();
    return known ? text("bf16 by ", machine.software.bf16) : "";
  }
  if (precision.products == Products::fp32)
    return size_of(precision.compute) == 2
               ? text(trireme::name_of(precision.compute), " widened to fp32")
               : text("fp32, which has no effect: the deck computes in ",
                      trireme::name_of(precision.compute));
  if (!machine.on_device()) return "fp8, computed in fp32 on hosts: the same numbers, not faster";
  return machine.device.peak_fp8 > 0
             ? "fp8 in the layers"
             : text("fp8 in the layers; times are those of ", trireme::name_of(precision.compute),
                    ", because ", machine.called(), " has no [device] peak_fp8");
}

std::string attention_note(const deck::PrecisionConfig& precision, const Machine& machine) {
  if (precision.attention == AttentionKind::automatic) return "";
  if (!machine.on_device())
    return text(name_of(precision.attention),
                precision.attention == AttentionKind::portable ? "" : ", which has no effect",
                ": the kernels of ", machine.called(), " run on the host");
  switch (precision.attention) {
    case AttentionKind::automatic:
    case AttentionKind::portable:
      return "portable kernels, those of hosts";
    case AttentionKind::tensor_cores:
      return "kernels for tensor cores";
    case AttentionKind::cudnn:
      return "cuDNN, whose gradients take S^2 numbers per head";
  }
  return "";
}

/// The attention kernels for packed documents, if they differ from the deck's choice; otherwise "".
std::string packing_note(const deck::Config& config, const Machine& machine) {
  const bool others = machine.on_device() && size_of(config.precision.compute) == 2 &&
                      config.precision.attention != AttentionKind::portable;
  if (!config.model.packs_documents() || !others) return "";
  return "packed documents: kernels for tensor cores without warpgroups, and portable ones for "
         "head sizes without such a kernel";
}

/// With a single active expert, normalisation makes its weight 1.
std::string experts_note(const deck::ExpertsConfig& experts) {
  if (!experts.present() || experts.active > 1 || !experts.normalised) return "";
  return "the loss of tokens does not train the routers, because the weight of a single "
         "active expert is always 1; set normalised = false to train them";
}

}  // namespace

std::vector<Note> notes(const deck::Config& config, const Machine& machine) {
  std::vector<Note> all{{"transport", transport_note(config.parallel, machine)},
                        {"offload", offload_note(config.parallel, machine)},
                        {"tf32", tf32_note(config.precision, machine)},
                        {"products", products_note(config.precision, machine)},
                        {"attention", attention_note(config.precision, machine)},
                        {"attention", packing_note(config, machine)},
                        {"experts", experts_note(config.model.experts)}};
  std::erase_if(all, [](const Note& note) { return note.words.empty(); });
  return all;
}

}  // namespace trireme::plan
