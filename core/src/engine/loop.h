// This is the engine's loop: sequences wait and run, one step at a time.
//
// A step is planned (plan.cc): the scheduler sees all sequences and says who runs; the cache is asked for room, and
// where it has none the scheduler says who makes place. Then it runs, and every sequence is given its tokens.
//
// On a device with queues a step may be launched before the one before it is read: the same sequences, each moved on by
// its newest token. Such a step is always taken as it is, whoever came meanwhile; the rows of sequences that have ended
// go to nobody. So the scheduler is asked again one step later, and nothing that the device has done is undone. It is
// launched shortly before the one before it ends (launch_time.h), so whoever comes until then does not wait for it.
// Where prompts are read, or somebody comes, the next step is planned as it will be when the one under way has ended
// (plan_next()): who generates then has one token more, which the device takes by itself. The masks of a step that was
// launched ahead are made when it is taken, for whoever is still there.
//
// Where that makes more tokens a second, some sequences that generate rest (rests.h).
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "clients.h"
#include "request_trace.h"
#include "rests.h"
#include "scheduler.h"
#include "sequence.h"
#include "tenon/core/pipeline.h"
#include "tickets.h"

namespace tenon {

// Thread: one at a time, but for totals().
class Loop {
 public:
  using Clock = std::chrono::steady_clock;
  struct Options {
    const RequestTrace* trace = nullptr;  // nullptr: nothing is recorded
    Scheduler::Log log;
    uint32_t rest_steps = 0;  // see Rests
    std::function<Clock::time_point()> clock;
  };
  // The pipeline is loaded before the first step.
  Loop(Pipeline& pipeline, Scheduler& scheduler, Tickets& tickets, Options options);

  // See Engine::step. Throws nothing: what goes wrong ends sequences.
  bool step();
  bool idle() const { return sequences_.empty(); }
  const RunStats& stats() const { return stats_; }
  RunStats totals() const;  // [any thread] they are as of the end of the last step

 private:
  // This is a row of a step and what was chosen for it.
  struct Chosen {
    int32_t token = 0;
    std::span<const float> logits;  // (vocab), empty if nobody wants them
  };
  // This is a sequence that has no next token.
  struct Broken {
    Sequence* sequence;
    uint32_t cached;  // tokens of it that were in the cache before the step
    bool sampled;     // its logits are finite
  };
  struct Share {
    Sequence* sequence;  // nullptr: it has ended since the step was launched
    uint32_t rows;
  };

  // These are in loop.cc.
  void welcome();
  void dismiss();
  void hand_over(Sequence& s);
  std::shared_ptr<const SavedSequence> saved(const Sequence& s);
  void fail(const std::exception_ptr& error, bool planned);
  void fill_batch();
  void add_rows(Sequence& s, uint32_t rows);
  void move_batch_on();
  void take_next();
  bool certain_to_go_on() const;
  void run();
  std::string_view give(const StepResult& result);
  void give(Sequence& s, uint32_t cached, std::span<const Chosen> chosen);
  void embed(Sequence& s, uint32_t cached);
  void account(double seconds, uint64_t new_tokens);
  bool is_plain() const;
  // These return how much of the caches all sequences that run have, and how much the last step read.
  double cached_bytes() const;
  double read_bytes() const;
  double weight_bytes() const;  // the step reads so many
  void record_counters(double seconds, uint64_t new_tokens) const;
  void record_prompt(const Sequence& s, uint32_t rows) const;
  void end_broken();
  static std::exception_ptr take_mask_problem(Sequence& s, std::span<const int32_t> kept,
                                              std::span<const Chosen>& chosen);

  // These are in plan.cc.
  bool plan();
  const StepBatch* plan_next();
  bool can_plan_next() const;
  bool anybody_can_run() const;
  void expect();
  void forget_expected();
  bool list();
  void describe();
  Scheduler::Room room() const;
  void draft(Sequence& s);
  void begin_round();
  bool may_rest(std::span<const tenon_share> shares) const;
  bool somebody_would_rest(std::span<const tenon_share> shares) const;
  void choose_resting(std::span<const tenon_share> shares);
  size_t resting() const;
  void end_rest(Sequence& s) const;
  void note_rest(Sequence& s) const;
  void place(uint32_t index, uint32_t rows);
  uint32_t make_room(uint32_t index, uint32_t rows);
  bool computed_by_another(const Sequence& s) const;
  Pipeline::Found beginning(const Sequence& s) const;
  void admit(Sequence& s);
  void load(Sequence& s, uint32_t rows);
  bool start(Sequence& s, uint32_t rows);
  void preempt(const Scheduler::Answer& answer);
  void preempt(Sequence& s, const Preemption& why);
  void vacate(Sequence& s);

  Pipeline& pipeline_;
  Scheduler& scheduler_;
  Tickets& tickets_;
  const RequestTrace* trace_;
  Scheduler::Log log_;
  std::function<Clock::time_point()> clock_;
  Rests rests_;
  std::vector<uint32_t> prompt_programs_;

  std::vector<std::unique_ptr<Sequence>> sequences_;  // by id
  std::vector<Sequence*> running_;                    // in the order of admission
  Clients clients_;
  std::vector<uint32_t> free_slots_;
  bool changed_ = false;  // somebody came or left since the scheduler was asked

  // These are of the step that is planned, or launched ahead with the same sequences.
  std::vector<Share> shares_;
  StepBatch batch_;
  // These are of the step that is planned while another one is under way.
  std::vector<Share> next_shares_;
  StepBatch next_batch_;
  std::exception_ptr plan_error_;
  bool plans_next_ = false;  // nobody may lose a place meanwhile
  bool blocked_ = false;     // somebody would have to
  bool next_ready_ = false;  // it is planned, and launched if ahead_ says so
  bool round_ = false;       // the draft model makes all of its drafts
  bool ahead_ = false;       // it is under way on the device
  struct Newest {
    int32_t token, accepted;  // the last chosen token; rows that survived
  };
  std::vector<Newest> newest_;  // they are those of the step before it, by share

  struct Masked {
    Sequence* sequence;  // nullptr: it has ended since the step was launched
    int32_t draft;       // the row's; -1: it is the text's newest token
  };
  std::vector<Masked> masked_;  // by number of the masks of the step that is planned last

  // These are filled in one call, and kept for their room.
  std::vector<std::unique_ptr<Sequence>> joining_;
  std::vector<Ticket> cancelled_;
  std::vector<Sequence*> listed_;        // the scheduler sees these in this order, and
  std::vector<tenon_sequence> entries_;  // as it sees it
  std::vector<Rests::Member> members_;
  std::vector<Chosen> chosen_;
  std::vector<Broken> broken_;
  std::string text_;  // the text of the step's tokens, for the trace

  uint64_t steps_ = 0;  // so many were planned: age counts in these
  Clock::time_point step_begin_{};
  uint32_t fruitless_ = 0;  // plans in a row that led to no step
  RunStats stats_;
  mutable std::mutex totals_mutex_;
  RunStats totals_;
};

}  // namespace tenon
