#include "altered.h"

TENON_ALTERED_PLUGIN(it.note.kind[5] = 'o';);
