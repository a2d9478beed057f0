#include "launcher/bench/serve/dataset.h"

namespace bulkhead {

absl::string_view BuiltInText() {
  return R"(The harbour master kept two ledgers. In the first she wrote what every ship was said to
carry, as its captain told her across the rail: so many casks of oil, so many bales of wool, so
many crates of oranges packed in straw. In the second she wrote what was lifted out of the hold
and set upon the quay. The two seldom agreed. When a young clerk asked why she troubled to keep
the first at all, she said that a harbour lives on the difference between the two.

Each morning at six the pilot boats went out to meet whatever the night had brought. They were
narrow boats with tan sails, and from the lighthouse they looked like leaves that had fallen on
the water. A pilot would climb aboard a stranger, shake hands all round, and take the wheel from a
man twice his age. For the next hour he owned the ship. He knew where the bank had moved since
spring, which of the two channels had silted up, and how the tide turned back on itself behind the
mole. Then he handed the wheel over, signed his name, and rowed out again to the next one.

There was a shipwright named Orrin who built hulls with walls across them. Other builders laughed.
A wall takes room that could have held cargo, they said, and a hold is sold by the cubic yard.
Orrin answered that he had once seen a brig go down from a hole no wider than a hat. The water had
come in at the bow, and since nothing stopped it, it had gone through to the stern. He put five
walls into every hull from that day on. A ship of his could be holed twice and still reach the
harbour, slow and heavy and leaning to one side, but with her people dry.

It happened in the autumn of the long gales that one of these ships came in with three of her six
rooms full of sea. The crowd on the quay counted them by the marks on her side. Her owner, who had
complained loudest about the lost cargo space, stood bareheaded in the rain and watched his crew
come down the gangway one after another. Nobody heard him speak of cubic yards again.

In winter the harbour slept. Ice closed the upper basin, and the cranes stood with their arms
folded. The clerks moved their desks closer to the stove and copied out the year: tonnage by
month, dues by flag, days lost to fog. A good clerk could read a whole year from those columns.
Here the herring had failed; here a war had begun somewhere and insurance had doubled; here, for
nine days in June, the wind had blown from the east and forty ships had waited outside, close
enough to see the lamps of the town and unable to reach them.

Waiting was what the harbour sold, said the old crane driver, though no bill ever named it. A
berth costs the same for a ship that unloads in a day and for one that needs a week, but the ship
behind it pays for the difference in bread and water and temper. He had proposed, years ago, that
small coasters should be let in between the large ones, since they were gone within the hour. The
council had refused, because it seemed unfair to the large ones. So the large and the small waited
together, one behind the other, and the gulls had the benefit of it.

The lighthouse keeper measured time by the lens. It turned once in twenty seconds, floating in a
bath of mercury, so finely balanced that a child could have stopped it with one finger. Every
twenty seconds the beam crossed the water, touched the far cape, and came round again. In thirty
years he had missed eleven turns. He knew the date of each of them and the reason, and he could
not have told you the birthdays of his own nephews.

When the railway came, people said that the harbour was finished. It was not finished; it changed
what it was for. Coal came down from the hills in the morning and went out with the evening tide.
The old warehouses, with their smell of pepper and rope, were let to a man who made lenses and to
a woman who printed maps. Her maps were the best on that coast, for she had them corrected every
week by the pilots, who were paid in paper and ink and who never once missed a payment.

What a map leaves out is a matter of taste, she used to say, but what it puts in is a matter of
honour. She drew a rock that had been reported by one drunken mate in the dark, with a small
question mark beside it, and she kept that question mark for sixteen years, until a dredger found
the rock precisely where he had said. The mate was long dead by then. She sent a copy of the new
sheet to his daughter, with the mark erased and his name engraved along the reef.
)";
}

}  // namespace bulkhead
