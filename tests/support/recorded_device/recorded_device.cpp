// Streams, events and memory of the recorded device. The order of work is known when it is added
// (clocks); its effects come later (step).
#include "support/recorded_device/recorded_device.hpp"

#include <trireme/base/text.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace trireme::testing {

class RecordedDevice::Recording : public StreamWork {
 public:
  Recording(std::string label, std::shared_ptr<Mark> mark)
      : StreamWork(std::move(label)), mark_(std::move(mark)) {}
  bool run() override {
    mark_->reached = true;
    return true;
  }

 private:
  std::shared_ptr<Mark> mark_;
};

class RecordedDevice::Waiting : public StreamWork {
 public:
  Waiting(std::string label, std::shared_ptr<Mark> mark)
      : StreamWork(std::move(label)), mark_(std::move(mark)) {}
  bool ready() const override { return mark_->reached; }
  bool run() override { return true; }

 private:
  std::shared_ptr<Mark> mark_;
};

namespace {

class Kernel : public StreamWork {
 public:
  Kernel(const std::string& label, std::function<void()> body)
      : StreamWork(label), body_(std::move(body)) {}
  bool run() override {
    body_();
    return true;
  }

 private:
  std::function<void()> body_;
};

}  // namespace

RecordedDevice& recorded_device() {
  static RecordedDevice device;
  return device;
}

void RecordedDevice::restart(int schedule) {
  schedule_ = schedule;
  nccl = {};
  streams_.clear();
  streams_[0];
  events_.clear();
  next_stream_ = next_event_ = 1;
  urgent_ = 0;
  known_.clear();
  problems_.clear();
  accesses_.clear();
  host_.clear();
  calls_.clear();
  failures_.clear();
}

void RecordedDevice::problem(const std::string& what) {
  if (known_.insert(what).second) problems_.push_back(what);
}

std::vector<std::string> RecordedDevice::problems_at_end() {
  if (const std::string left = outstanding(); !left.empty()) problem("still outstanding: " + left);
  if (streams() != 0) problem(text(streams(), " streams were not destroyed"));
  if (events() != 0) problem(text(events(), " events were not destroyed"));
  if (nccl.communicators != 0)
    problem(text(nccl.communicators, " communicators were not destroyed"));
  if (nccl.open_groups != 0) problem(text(nccl.open_groups, " groups did not end"));
  for (const Failure& f : failures_) problem(f.function + " was to fail, and was not called");
  return problems_;
}

void RecordedDevice::fail(const std::string& function, int code, int skip) {
  failures_.push_back({function, code, skip});
}

int RecordedDevice::enter(const char* function) {
  ++calls_[function];
  for (auto f = failures_.begin(); f != failures_.end(); ++f) {
    if (f->function != function || f->skip-- > 0) continue;
    const int code = f->code;
    failures_.erase(f);
    return code;
  }
  return 0;
}

int RecordedDevice::calls(const std::string& function) const {
  const auto found = calls_.find(function);
  return found == calls_.end() ? 0 : found->second;
}

void RecordedDevice::abandon() {
  for (auto& [stream, s] : streams_) s.work.clear();
}

int RecordedDevice::make_stream(bool ordered_with_default, int priority) {
  if (ordered_with_default)
    problem("a stream waits for the default one, and that for it: not cudaStreamNonBlocking");
  if (priority < 0) ++urgent_;
  streams_[next_stream_];
  return next_stream_++;
}

void RecordedDevice::destroy_stream(int stream) {
  if (find(stream, "destroying") == nullptr) return;
  if (!idle(stream)) problem(text("stream ", stream, " is destroyed with outstanding work"));
  streams_.erase(stream);
}

int RecordedDevice::make_event() {
  events_[next_event_];
  return next_event_++;
}

void RecordedDevice::destroy_event(int event) {
  if (find_event(event, "destroying") != nullptr) events_.erase(event);
}

RecordedDevice::Stream* RecordedDevice::find(int stream, const char* what) {
  const auto found = streams_.find(stream);
  if (found != streams_.end()) return &found->second;
  problem(text(what, " stream ", stream, ", which does not exist"));
  return nullptr;
}

std::shared_ptr<RecordedDevice::Mark>* RecordedDevice::find_event(int event, const char* what) {
  const auto found = events_.find(event);
  if (found != events_.end()) return &found->second;
  problem(text(what, " event ", event, ", which does not exist"));
  return nullptr;
}

void RecordedDevice::join(Clock& into, const Clock& other) {
  into.resize(std::max(into.size(), other.size()));
  for (std::size_t i = 0; i < other.size(); ++i) into[i] = std::max(into[i], other[i]);
}

std::int64_t RecordedDevice::at(const Clock& clock, int thread) {
  const auto i = static_cast<std::size_t>(thread);
  return i < clock.size() ? clock[i] : 0;
}

void RecordedDevice::add(int stream, std::unique_ptr<StreamWork> work, const Accesses& accesses) {
  Stream* const s = find(stream, ("adding " + work->label() + " to").c_str());
  if (s == nullptr) return;
  const int thread = thread_of(stream);
  join(s->clock, host_);
  s->clock.resize(std::max(s->clock.size(), static_cast<std::size_t>(thread) + 1));
  const std::int64_t number = ++s->clock[static_cast<std::size_t>(thread)];
  note(accesses, thread, number, s->clock, text(work->label(), " (stream ", stream, ")"));
  s->work.push_back(std::move(work));
}

void RecordedDevice::launch(int stream, const std::string& label, const Accesses& accesses,
                            std::function<void()> body) {
  add(stream, std::make_unique<Kernel>(label, std::move(body)), accesses);
}

/// A copy from or to memory that is not page-locked holds the host until it has ended.
void RecordedDevice::copy(int stream, void* to, const void* from, std::size_t bytes) {
  const bool pageable =
      kind_of(to) == MemoryKind::pageable || kind_of(from) == MemoryKind::pageable;
  if (pageable && !idle(stream))
    problem(text("the host is held in a copy of pageable memory until stream ", stream, " ends"));
  launch(stream, text("copy of ", bytes, " bytes"), {{{from, bytes}}, {{to, bytes}}},
         [=] { std::memcpy(to, from, bytes); });
  if (pageable) synchronize(stream);
}

void RecordedDevice::record(int event, int stream) {
  auto* const mark = find_event(event, "recording");
  Stream* const s = find(stream, "recording the end of");
  if (mark == nullptr || s == nullptr) return;
  *mark = std::make_shared<Mark>();
  add(stream, std::make_unique<Recording>(text("recording event ", event), *mark), {});
  (*mark)->clock = s->clock;
}

void RecordedDevice::wait(int stream, int event) {
  auto* const mark = find_event(event, "waiting for");
  Stream* const s = find(stream, "a wait in");
  if (mark == nullptr || s == nullptr || *mark == nullptr) return;  // never recorded: complete
  join(s->clock, (*mark)->clock);
  add(stream, std::make_unique<Waiting>(text("waiting for event ", event), *mark), {});
}

bool RecordedDevice::query(int event, bool& stuck) {
  stuck = false;
  auto* const mark = find_event(event, "querying");
  if (mark == nullptr || *mark == nullptr) return true;
  if ((*mark)->reached) {
    join(host_, (*mark)->clock);
    return true;
  }
  stuck = !move_on();
  return false;
}

void RecordedDevice::synchronize(int stream) {
  Stream* const s = find(stream, "synchronizing");
  if (s == nullptr) return;
  while (!s->work.empty())
    if (!move_on()) return problem("the host waits without end: " + outstanding());
  join(host_, s->clock);
}

bool RecordedDevice::idle(int stream) const {
  const auto found = streams_.find(stream);
  return found == streams_.end() || found->second.work.empty();
}

bool RecordedDevice::move_on() {
  std::vector<int> order;
  for (auto& [stream, s] : streams_) {
    order.push_back(stream);
    if (!s.work.empty()) s.work.front()->arrive();
  }
  const auto rank = [&](int stream) {  // Weyl's sequence, mixed by the schedule
    return static_cast<std::uint32_t>(stream + 1) *
           (2654435761U * static_cast<std::uint32_t>(schedule_) + 1U);
  };
  if (schedule_ == 1) std::reverse(order.begin(), order.end());
  if (schedule_ > 1)
    std::sort(order.begin(), order.end(), [&](int a, int b) { return rank(a) < rank(b); });
  for (const int stream : order) {
    Stream& s = streams_[stream];
    if (s.work.empty() || !s.work.front()->ready()) continue;
    if (s.work.front()->run()) s.work.pop_front();
    return true;
  }
  return false;
}

std::string RecordedDevice::outstanding() const {
  std::string all;
  for (const auto& [stream, s] : streams_)
    if (!s.work.empty())
      all += text(all.empty() ? "" : ", ", "stream ", stream, " is at ", s.work.front()->label());
  return all;
}

void RecordedDevice::host_reads(const void* begin, std::size_t bytes, const std::string& what) {
  const auto from = reinterpret_cast<std::uintptr_t>(begin);
  host_access({from, from + bytes, false, 0, 0, what});
}

void RecordedDevice::host_writes(const void* begin, std::size_t bytes, const std::string& what) {
  const auto from = reinterpret_cast<std::uintptr_t>(begin);
  host_access({from, from + bytes, true, 0, 0, what});
}

void RecordedDevice::host_access(const Access& access) {
  if (host_.empty()) host_.resize(1);
  Access mine = access;
  mine.number = ++host_[0];
  mine.label += " (host)";
  note(mine, host_);
}

void RecordedDevice::note(const Accesses& accesses, int thread, std::int64_t number,
                          const Clock& clock, const std::string& label) {
  const auto all = [&](const std::vector<MemoryRange>& ranges, bool writes) {
    for (const MemoryRange& r : ranges) {
      const auto begin = reinterpret_cast<std::uintptr_t>(r.begin);
      if (r.bytes > 0) note({begin, begin + r.bytes, writes, thread, number, label}, clock);
    }
  };
  all(accesses.reads, false);
  all(accesses.writes, true);
}

void RecordedDevice::note(const Access& access, const Clock& clock) {
  for (const Access& a : accesses_) {
    if (a.end <= access.begin || access.end <= a.begin || !(a.writes || access.writes)) continue;
    const bool same = a.thread == access.thread && a.number == access.number;
    if (!same && a.number <= at(clock, a.thread)) continue;
    problem(text(access.label, access.writes ? " writes" : " reads", " what ", a.label,
                 a.writes ? " writes" : " reads", ", and nothing orders them"));
  }
  accesses_.push_back(access);
}

void* RecordedDevice::allocate(std::size_t bytes, MemoryKind kind, const std::string& label) {
  void* const memory = std::calloc(std::max<std::size_t>(bytes, 1), 1);
  blocks_[reinterpret_cast<std::uintptr_t>(memory)] = {bytes, kind, label};
  return memory;
}

void RecordedDevice::free(void* memory) {
  const auto found = blocks_.find(reinterpret_cast<std::uintptr_t>(memory));
  const std::uintptr_t end = found->first + found->second.bytes;
  for (const auto& [stream, s] : streams_) {
    const std::int64_t last = at(s.clock, thread_of(stream));
    for (const Access& a : accesses_)
      if (a.thread == thread_of(stream) && a.begin < end && found->first < a.end &&
          a.number > last - static_cast<std::int64_t>(s.work.size()))
        problem(text(found->second.label, " is freed before ", a.label));
  }
  std::erase_if(accesses_, [&](const Access& a) { return a.begin < end && found->first < a.end; });
  blocks_.erase(found);
  std::free(memory);
}

RecordedDevice::MemoryKind RecordedDevice::kind_of(const void* address) const {
  const auto a = reinterpret_cast<std::uintptr_t>(address);
  auto next = blocks_.upper_bound(a);
  if (next == blocks_.begin()) return MemoryKind::pageable;
  --next;
  return a < next->first + next->second.bytes ? next->second.kind : MemoryKind::pageable;
}

}  // namespace trireme::testing
