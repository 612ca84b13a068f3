#pragma once

#include <trireme/deck/deck.hpp>
#include <trireme/plan/machine.hpp>
#include <trireme/schedule/draw.hpp>
#include <trireme/schedule/program.hpp>
#include <trireme/schedule/timeline.hpp>

#include <optional>
#include <string>

namespace trireme::commands {

/// A step's predicted timeline, and the timeline measured by a run if there is one.
struct Drawing {
  schedule::Timeline predicted;
  std::optional<schedule::Timeline> measured;
  std::string schedule;
  std::string warning;  ///< reason why an existing measured timeline is not drawn; "": no warning

  /// Idle shares of the timelines as text.
  std::string idle() const;
  /// Options for drawing `predicted`; `measured` must outlive them.
  schedule::DrawOptions options() const;
};

/// Simulates the deck's program. Passes take the mean times of the timeline in the file `measured`;
/// without a file that matches the deck, times are proportional to the stages' FLOPs. With
/// `must_fit`, UsageError if the file is missing or does not match the deck.
Drawing make_drawing(const deck::Deck& deck, const plan::Machine& machine,
                     const std::string& measured, bool must_fit);

}  // namespace trireme::commands
