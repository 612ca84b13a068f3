#pragma once

#include <trireme/deck/deck.hpp>
#include <trireme/plan/machine.hpp>
#include <trireme/schedule/draw.hpp>
#include <trireme/schedule/program.hpp>
#include <trireme/schedule/timeline.hpp>

#include <optional>
#include <string>

namespace trireme::commands {

/// A step's timeline as predicted and, where a run measured it, as measured.
struct Drawing {
  schedule::Timeline predicted;
  std::optional<schedule::Timeline> measured;
  std::string schedule;
  std::string warning;  ///< why a timeline that is there is not drawn; "": nothing was left out

  /// Both idle shares in words.
  std::string idle() const;
  /// What the drawings need beside `predicted`.
  schedule::DrawOptions options() const;
};

/// Plays the deck's program, as lowered for the machine, with the FLOPs of its stages or, if there
/// is one, with what the timeline in the file `measured` says. That file must exist and fit the
/// deck if it `must_fit`.
Drawing make_drawing(const deck::Deck& deck, const plan::Machine& machine,
                     const std::string& measured, bool must_fit);

}  // namespace trireme::commands
