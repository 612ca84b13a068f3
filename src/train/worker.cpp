#include <trireme/train/worker.hpp>

#include <trireme/base/check.hpp>
#include <trireme/train/precision.hpp>
#include <trireme/train/server_worker.hpp>
#include <trireme/train/typed_worker.hpp>

#include <numbers>

namespace trireme::train {

double Evaluation::bits_per_byte() const {
  return tokens().nats / std::numbers::ln2 / static_cast<double>(bytes);
}

std::unique_ptr<Worker> make_worker(const deck::Config& config,
                                    const architecture::Architecture& architecture,
                                    grid::Grid& grid, const plan::Machine& machine,
                                    std::span<const schedule::Program> programs, Mode mode) {
  check(!programs.empty() == (mode == Mode::train),
        "a training worker needs programs, no other does");
  return with_precision(config.precision.compute, [&]<class P>(P) -> std::unique_ptr<Worker> {
    if (mode == Mode::train && config.parallel.has_servers() &&
        grid.coordinates()[Axis::data] >= config.parallel.data)
      return std::make_unique<ServerWorker<P>>(config, architecture, grid);
    return std::make_unique<TypedWorker<P>>(config, architecture, grid, machine, programs);
  });
}

}  // namespace trireme::train
