// This plugin is of a kind that there is not.
#include "altered.h"

TENON_ALTERED_PLUGIN(it.note.kind[5] = 'o';);
