#pragma once

#include <trireme/deck/batch_schedule.hpp>
#include <trireme/kernels/handle.hpp>
#include <trireme/model/parameters.hpp>
#include <trireme/optim/optimizer.hpp>
#include <trireme/tensor/arena.hpp>
#include <trireme/train/engine.hpp>
#include <trireme/train/server_link.hpp>
#include <trireme/train/server_order.hpp>
#include <trireme/train/server_record.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace trireme::train {

/// A rank of a parameter server. Holds the weights and the optimizer state of its key range
/// (architecture::server_cut), receives the gradients of the workers, updates the weights and sends
/// the weights to the workers. All ranks of servers execute the events in the order that the leader
/// (the first rank of the first server) chooses.
template <class P>
class ServerEngine final : public Engine {
 public:
  using T = typename P::Compute;
  using G = typename P::Gradient;

  /// Arguments must outlive this object. Collective.
  ServerEngine(const deck::Config& config, const architecture::Architecture& architecture,
               grid::Grid& grid);

  void initialise() override;
  void train_step(std::int64_t step, const data::Samples& samples) override {
    overlapping_step(step, samples, false);
  }
  void timed_step(std::int64_t step, const data::Samples& samples) override {
    overlapping_step(step, samples, false);
  }
  void overlapping_step(std::int64_t step, const data::Samples& samples,
                        bool next_follows) override;
  void audit_state(std::int64_t) override {}
  schedule::Timeline timeline() override { return {}; }
  StepResult result() override;
  StepResult result_of(std::int64_t step) override;
  /// Sends the newest weights to the workers, and returns only LossSum::nats of the token loss.
  Evaluation evaluate(const data::Windows& file, std::int64_t windows,
                      const std::vector<std::int32_t>& bytes_of_token) override;
  std::vector<Score> score(const data::Requests& requests) override;
  std::vector<std::vector<std::int32_t>> likeliest(const data::Requests& requests) override;
  std::vector<checkpoint::SliceView> share() override;
  void load(const checkpoint::Reader& reader) override;
  std::vector<plan::MemoryRow> memory() const override;
  double measure_peak() override { return 0; }
  std::string description() const override;

 private:
  /// A range of a bucket that this server holds.
  struct Part {
    std::size_t bucket = 0;
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::int64_t received = 0;  ///< offset in the memory of received gradients
    std::int64_t size() const { return end - begin; }
  };
  /// Gradients of one step that are arriving from one worker.
  struct Arrival {
    View1<G> memory;
    std::vector<grid::Request> requests;
  };
  /// The leader's receives of the next announcement of each worker.
  struct Listening {
    std::vector<ServerMessages::Announcement> heard;
    std::vector<grid::Request> requests;
    std::vector<bool> paused;  ///< whether a worker announces nothing until the step is complete
  };

  void find_parts();
  void begin_after(std::int64_t step);
  void lead(std::int64_t step, bool last);
  void follow(std::int64_t step);
  void listen();
  void hear();
  void tell(const ServerEvent& event);
  void execute(const ServerEvent& event);
  void receive_gradients(int worker, std::int64_t step);
  void send_weights(int worker);
  void finish_sends();
  void update(const ServerEvent& event);
  void sum_gradients(const ServerEvent& event);
  void sum_over_model();
  Arrival& arrival(int worker, std::int64_t step);
  void publish(const char* what, std::int64_t step) const;

  const deck::Config& config_;
  const architecture::Architecture& architecture_;
  grid::Grid& grid_;
  grid::Communicator& group_;  ///< ranks of servers with parts of the same arrays
  const deck::BatchSchedule batches_;
  kernels::Handle handle_;
  model::Parameters<P> parameters_;
  std::optional<optim::Optimizer<P>> optimizer_;
  std::optional<ServerMessages> messages_;
  std::vector<Part> parts_;
  Arena received_;
  std::vector<Arrival> arrivals_;  ///< [staleness + 1, workers]: by step and worker
  std::vector<grid::Request> sends_;
  ServerOrder order_;
  std::optional<Listening> listening_;  ///< on the leader
  std::optional<ServerRecord> record_;  ///< on the leader, if events are recorded
  std::vector<std::unique_ptr<ServerMessages::Told>> told_;
  std::vector<grid::Request> telling_;
  std::int64_t step_ = 0;
  bool begun_ = false;
  bool was_last_ = true;
};

extern template class ServerEngine<model::Fp32>;
extern template class ServerEngine<model::Fp64>;
extern template class ServerEngine<model::MixedBf16>;
extern template class ServerEngine<model::MixedFp16>;

}  // namespace trireme::train
