#include "server.h"

#include <condition_variable>
#include <mutex>
#include <thread>

namespace tenon::serve {
namespace {

constexpr double kLastWords = 5;  // when all requests have ended, connections have so many seconds to send what is left

// Calls a function when some time has passed after it was armed, unless it is destroyed before.
class Deadline {
 public:
  Deadline(double seconds, std::function<void()> late) : seconds_(seconds), late_(std::move(late)) {}
  ~Deadline() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

  void arm() {
    thread_ = std::thread([this] {
      std::unique_lock lock(mutex_);
      if (!changed_.wait_for(lock, std::chrono::duration<double>(seconds_), [this] { return over_; })) late_();
    });
  }

 private:
  double seconds_;
  std::function<void()> late_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace

Server::Server(Engine& engine, ServerOptions options)
    : options_(std::move(options)),
      metrics_(options_.api.models.front()),
      http_(options_.http),
      driver_(
          engine, metrics_,
          {.max_waiting = options_.max_waiting, .post = [this](std::function<void()> f) { http_.post(std::move(f)); }}),
      api_(engine, driver_, metrics_, options_.api) {}

void Server::run(const std::stop_token& stop) {
  http_.start(api_, driver_);
  {
    Deadline deadline(options_.drain_seconds, [this] { driver_.cancel_all(); });
    const std::stop_callback drain(stop, [&] {
      driver_.close();
      http_.drain();
      deadline.arm();
    });
    try {
      driver_.run(options_.beat ? options_.beat : [] {});
    } catch (...) {
      http_.stop(0);
      throw;
    }
  }
  http_.stop(kLastWords);
}

}  // namespace tenon::serve
