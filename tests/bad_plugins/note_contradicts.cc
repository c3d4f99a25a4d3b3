// This plugin's note calls it "food", its table "good".
#include "altered.h"

TENON_ALTERED_PLUGIN(it.note.name[0] = 'f';);
