#include <trireme/train/engine.hpp>

#include <trireme/base/check.hpp>
#include <trireme/train/precision.hpp>
#include <trireme/train/server_engine.hpp>
#include <trireme/train/typed_engine.hpp>

#include <numbers>

namespace trireme::train {

double Evaluation::bits_per_byte() const {
  return tokens().nats / std::numbers::ln2 / static_cast<double>(bytes);
}

std::unique_ptr<Engine> make_engine(const deck::Config& config,
                                    const architecture::Architecture& architecture,
                                    grid::Grid& grid, const plan::Machine& machine,
                                    std::span<const schedule::Program> programs, Mode mode) {
  check(!programs.empty() == (mode == Mode::train),
        "a training worker needs programs, no other does");
  return with_precision(config.precision.compute, [&]<class P>(P) -> std::unique_ptr<Engine> {
    if (mode == Mode::train && config.parallel.has_servers() &&
        grid.coordinates()[Axis::data] >= config.parallel.data)
      return std::make_unique<ServerEngine<P>>(config, architecture, grid);
    return std::make_unique<TypedEngine<P>>(config, architecture, grid, machine, programs);
  });
}

}  // namespace trireme::train
