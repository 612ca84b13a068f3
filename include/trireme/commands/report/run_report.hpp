#pragma once

#include <trireme/base/types.hpp>
#include <trireme/commands/report/run_events.hpp>
#include <trireme/deck/deck.hpp>
#include <trireme/train/metrics.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace trireme::commands {

/// The lines of a metrics.jsonl file.
struct RunRecords {
  std::vector<train::Metrics> steps;    ///< logged steps, ascending; non-finite values are NaN
  std::vector<train::StepLoss> losses;  ///< losses and gradient norms of all steps
  bool torn = false;  ///< the last line was incomplete after a kill, and was ignored
};

/// Reads a metrics.jsonl file. UsageError for damage other than an incomplete last line.
RunRecords read_records(const std::string& path);

/// A checkpoint folder.
struct SavedModel {
  std::string name;
  std::int64_t step = 0;
  std::int64_t samples = 0;
  Bytes bytes = 0;
  std::string layout;
  std::string damage;  ///< reason why its manifest could not be read; "": it is readable
};

/// A text that a run or `trireme generate -o` has written.
struct GeneratedText {
  std::int64_t step = 0;
  std::string prompt;
  std::string words;
  std::vector<std::string> images = {};  ///< files of the prompt's images
  std::string image_fit = {};            ///< how they became squares, as in data::ImageForm
};

/// Reads a file of generated texts. UsageError for damage other than an incomplete last line.
std::vector<GeneratedText> read_texts(const std::string& path);

struct EarlierRun {
  std::string name;  ///< file name: metrics.previous-1.jsonl
  RunRecords records;
};

/// The data of a run that a report shows.
struct RunReport {
  std::string folder;
  deck::Deck deck;
  std::string deck_toml;
  RunRecords records;
  std::vector<EarlierRun> earlier;    ///< oldest first
  std::optional<RunHistory> history;  ///< empty without events.jsonl
  std::optional<RunUsage> usage;      ///< empty without events.jsonl, or without a batch system
  std::string checkpoint_folder;
  std::vector<SavedModel> checkpoints;  ///< by ascending step
  std::vector<GeneratedText> texts;     ///< in the order of the files
  std::string timeline_svg;             ///< "": none
  std::string timeline_words;      ///< description of the timeline, or the reason why there is none
  std::vector<std::string> notes;  ///< missing or ignored data
};

/// The steps from one logged step to the next, if some of them were skipped.
struct SkippedSteps {
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::int64_t steps = 0;  ///< number of skipped steps
  std::string words;       ///< last skipped step and reason; without events, numbers of steps
};
std::vector<SkippedSteps> skipped_steps(const RunReport& report);

/// Versions of Trireme that trained the run, according to its events: "0.1.0"; "" if unknown.
std::string versions_of(const RunReport& report);

/// "Finished", or "Not finished" with the end of the last job; and whether the run is finished.
std::pair<std::string, bool> state_of(const RunReport& report);

/// The logged step with the smallest finite validation loss; null: none.
const train::Metrics* best_validation(const RunRecords& records);
/// Sum of the times of all steps, without evaluations and checkpoints.
Seconds time_in_steps(const RunRecords& records);
/// Median of the finite values over the logged steps; NaN if there are none.
double median(const RunRecords& records, double train::Metrics::*value);

/// The end of job `number`, counted from 0: "stopped: time limit after step 40 (exit code 75)".
std::string end_of_job(const RunHistory& history, std::size_t number);

/// The whole page: HTML that is also well-formed XML, without external resources.
std::string report_page(const RunReport& report);

/// Several runs on one page: superimposed curves, figures, and differences of their decks.
std::string comparison_page(std::span<const RunReport> runs);

/// HTML of parts of a report's page. The charts are also a part of a comparison page.
std::string report_headline(const RunReport& report);
std::string report_charts(std::span<const RunReport> runs);
std::string report_jobs(const RunReport& report);
std::string report_layout(const RunReport& report);
/// Style sheet for light and dark mode, narrow and wide screens, and paper.
std::string report_style();

}  // namespace trireme::commands
