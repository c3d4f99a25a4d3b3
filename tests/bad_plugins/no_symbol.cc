// This plugin has a note, but nothing that it points to.
#include "good_sampler.h"

extern "C" __attribute__((section(".note.tenon"), used, aligned(4))) const tenon_note_section tenon_note_v1 =
    tenon::sdk::detail::note<tenon::bad::Good>();
