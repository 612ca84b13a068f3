#pragma once

#include <trireme/grid/communicator.hpp>
#include <trireme/layout/stage_map.hpp>
#include <trireme/model/pipeline_stage.hpp>
#include <trireme/model/tensor_axis.hpp>
#include <trireme/tensor/arena.hpp>

#include <cstdint>
#include <vector>

namespace trireme::train {

/// Messages with activations and gradients between pipeline stages. Every tensor rank sends its
/// slice of the tokens to the rank with the same tensor coordinate, and the receivers gather the
/// slices over the tensor axis (Narayanan et al. 2021, section 4.1). Between stages of one rank,
/// rows are copied in memory, without a message.
template <class T>
class Transfers {
 public:
  using Rows = model::StageRows<T>;
  struct Buffers {
    int activations = 0;  ///< largest number of posted receives of activations
    int gradients = 0;
    int handed_over = 0;   ///< largest number of messages to the same rank in memory
    int sends = 2;         ///< sends in flight at a time, for each channel to another rank
    bool training = true;  ///< false: activations only
  };

  /// `pipeline` and `axis` must outlive this object.
  Transfers(grid::Communicator& pipeline, const model::TensorAxis& axis,
            const layout::StageMap& stages, const architecture::RankSizes& sizes,
            const Buffers& buffers);

  /// Posts the receive of `stage`'s input. No effect if this rank has the previous stage.
  void receive_activation(const Exec& exec, Stage stage, int buffer);
  /// Waits for `stage`'s input, and stores it in `rows`.
  void take_activation(const Exec& exec, Stage stage, int buffer, const Rows& rows);
  /// Sends the output of `stage`. Later work on exec may overwrite the rows. `buffer`: buffer of a
  /// message to the same rank.
  void send_activation(const Exec& exec, Stage stage, int buffer, const Rows& rows);

  /// Like receive_activation and take_activation, for the gradient of `stage`'s output, which comes
  /// from the next stage.
  void receive_gradient(const Exec& exec, Stage stage, int buffer);
  void take_gradient(const Exec& exec, Stage stage, int buffer, const Rows& rows);
  /// Sends the gradient of the input of `stage`, as send_activation does.
  void send_gradient(const Exec& exec, Stage stage, int buffer, const Rows& rows);

  /// Waits for all sends in flight.
  void finish();

  std::int64_t bytes() const { return memory_.capacity(); }

 private:
  enum class Direction : std::uint8_t { forward, backward };
  struct Message {
    View1<T> memory;  ///< of `slices`, one after the other
    Rows slices;
    grid::Request request;
  };
  /// Messages to one receiving stage on another rank in one direction, in order.
  struct Channel {
    Stage to = 0;
    Direction direction = Direction::forward;
    std::vector<Message> sent;
    std::size_t next = 0;  ///< index in `sent` of the buffer for the next message
  };

  static int tag_of(Stage to, Direction direction) {
    return 2 * to + (direction == Direction::forward ? 0 : 1);
  }
  static Stage sender_of(Stage to, Direction direction) {
    return direction == Direction::forward ? to - 1 : to + 1;
  }
  bool is_local(Stage to, Direction direction) const {
    return stages_.rank_of(to) == stages_.rank_of(sender_of(to, direction));
  }
  void take_memory(Arena& arena, const Buffers& buffers);
  /// Rows of `tokens` tokens, also of each module, and of `source` tokens of a source, and all
  /// tables.
  Message take_message(Arena& arena, std::int64_t tokens, std::int64_t source) const;
  static void copy(const Exec& exec, const Rows& to, const Rows& from);
  void receive(const Exec& exec, Stage to, Direction direction, std::vector<Message>& messages,
               int buffer);
  void take(const Exec& exec, Stage to, Direction direction, std::vector<Message>& messages,
            int buffer, const Rows& rows, const char* what);
  void send(const Exec& exec, Stage to, Direction direction, int buffer, const Rows& rows);

  grid::Communicator& pipeline_;
  const model::TensorAxis& axis_;
  layout::StageMap stages_;
  architecture::RankSizes sizes_;
  Arena memory_;
  std::vector<Message> activations_;
  std::vector<Message> gradients_;
  std::vector<Channel> channels_;
  std::vector<Message> handed_over_;  ///< messages to the same rank, with all rows of the stage
};

}  // namespace trireme::train
