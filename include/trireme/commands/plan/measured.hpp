#pragma once

#include <trireme/deck/deck.hpp>

#include <string>
#include <vector>

namespace trireme::commands {

/// A measured training step of any program.
struct MeasuredStep {
  std::string label;  ///< of the model
  deck::Deck deck;    ///< model, layout and batch; its axes are resolved
  Seconds seconds = 0;
  double memory = 0;  ///< bytes of a rank; 0: not measured
  int line = 0;       ///< of the file
};

/// Reads a CSV file whose first line names the columns. Required: layers, hidden, heads, sequence,
/// vocabulary, tensor, pipeline, data, micro, global_batch, step_ms. Read if they are there: model
/// (a label; one that begins with the name of a family and an underscore chooses the family),
/// key_value_heads, feed_forward, schedule, chunks, recompute, sequence_parallel, zero_stage (0 or
/// 1), memory_gb (10⁹ bytes), and columns whose name is a deck's key such as
/// model.tied_embeddings. Other columns are ignored. `overrides` apply to all rows. Throws
/// UsageError with file and line.
std::vector<MeasuredStep> read_measured(const std::string& path,
                                        const std::vector<std::string>& overrides);

}  // namespace trireme::commands
