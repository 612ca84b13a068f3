#include <trireme/base/check.hpp>
#include <trireme/train/typed_worker.hpp>
#include <trireme/train/worker.hpp>

#include <numbers>

namespace trireme::train {

double Evaluation::bits_per_byte() const {
  return nats / std::numbers::ln2 / static_cast<double>(bytes);
}

std::unique_ptr<Worker> make_worker(const deck::Config& config,
                                    const architecture::Architecture& architecture,
                                    grid::Grid& grid, std::span<const schedule::Program> programs,
                                    Mode mode) {
  check(!programs.empty() == (mode == Mode::train),
        "a training worker needs programs, no other does");
  if (config.precision.compute == DType::fp64)
    return std::make_unique<TypedWorker<model::Fp64>>(config, architecture, grid, programs);
  check(config.precision.compute == DType::fp32,
        "[precision] compute = ", name_of(config.precision.compute));
  return std::make_unique<TypedWorker<model::Fp32>>(config, architecture, grid, programs);
}

}  // namespace trireme::train
