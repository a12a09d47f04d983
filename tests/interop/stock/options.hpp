// The command line of the helper program: positional words and `--name value` options in any order.

#ifndef FARHAUL_INTEROP_OPTIONS_HPP
#define FARHAUL_INTEROP_OPTIONS_HPP

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <unistd.h>
#include <vector>

[[noreturn]] inline void fail(const std::string& message) {
    fflush(stdout);
    fprintf(stderr, "stock: %s\n", message.c_str());
    // _exit, because other threads may be inside the library.
    _exit(1);
}

class Options {
public:
    Options(int argc, char** argv) {
        for (int i = 1; i < argc; i++) {
            const std::string word = argv[i];
            if (word.compare(0, 2, "--") != 0) {
                words_.push_back(word);
            } else if (is_one_of(word, flag_names)) {
                values_[word] = "1";
            } else if (is_one_of(word, value_names)) {
                if (++i == argc) fail(word + " needs a value");
                values_[word] = argv[i];
            } else {
                fail("unknown option " + word);
            }
        }
    }

    // Takes the next positional word; `what` names it in the error.
    std::string take(const char* what) {
        if (next_ == words_.size()) fail(std::string("missing argument ") + what);
        return words_[next_++];
    }
    int64_t take_number(const char* what) { return number(take(what), what); }
    bool exhausted() const { return next_ == words_.size(); }

    bool has(const char* name) const { return values_.count(name) != 0; }
    std::string text(const char* name, const char* otherwise) const {
        return has(name) ? values_.at(name) : otherwise;
    }
    int64_t number(const char* name, int64_t otherwise) const {
        return has(name) ? number(values_.at(name), name) : otherwise;
    }

    // A whole decimal number, 0 or more.
    static int64_t number(const std::string& text, const char* what) {
        char* end = nullptr;
        errno = 0;
        const long long value = strtoll(text.c_str(), &end, 10);
        if (text.empty() || *end != '\0' || errno != 0 || value < 0)
            fail(std::string("not a number for ") + what + ": " + text);
        return value;
    }

private:
    using Names = std::vector<std::string>;
    static bool is_one_of(const std::string& word, const Names& names) {
        for (const std::string& name : names)
            if (name == word) return true;
        return false;
    }

    const Names flag_names = {"--v6", "--print-port", "--close-first", "--wait-close", "--stats"};
    const Names value_names = {"--bind",       "--mss",        "--fc",      "--sndbuf", "--rcvbuf",
                               "--udp-sndbuf", "--udp-rcvbuf", "--maxbw",   "--expect", "--pause",
                               "--ttl",        "--order",      "--timeout"};
    std::vector<std::string> words_;
    size_t next_ = 0;
    std::map<std::string, std::string> values_;
};

#endif
