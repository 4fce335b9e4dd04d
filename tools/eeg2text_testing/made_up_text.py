"""Made-up sentences of several genres and languages, from small grammars: text that no data set holds.

`sentences(kind, count, seed)` returns distinct sentences with their genres. Kinds: `english` (six genres, 4 to 35
words; `english-2`: the first two genres), `german`, `chinese` (no spaces), `captions` (of 40 classes; the genre is the
class), `digits` (spoken numbers).
"""

import random
import re

SHARED = {
    "name": "Anna Weber|Tom Reyes|José Lindqvist|Zoë Carter|Mary Okafor|Paul Ivanov|Renée Dupont|Sam Whitfield"
    "|Ruth Adler|Peter Kowalski|Clara Nuñez|Hugo Brandt|Nina Farrow|Oscar Tan|Edith Moran|Leo Castellan",
    "town": "Marston|Velora|Port Hale|Brenwick|Saint-Gérard|Ostrava Bay|Lindgrove|Karsk|Dunmore|Alta Mira|Fenwick"
    "|Tolosa",
    "year": "1802|1837|1871|1899|1914|1926|1938|1947|1955|1963|1978|1984|1996|2003|2011",
    "count": "two|three|four|five|seven|nine|a dozen|twenty|forty|several|a few|hundreds of",
    "day": "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday",
    "month": "January|March|April|June|August|October|November|December",
}
ENGLISH = {
    "film": {
        "S": "{open} {about}.|{open}, {but} {flaw}.|The {part} is {adj} and the {part} is {adj}."
        "|It is a {adj} {film}.|{open} {about}, {but} the {part} never becomes more than {adj}, and {flaw}."
        "|Nobody will miss this {adj} {film}."
        "|If you like {theme}, this {film} {about} will keep you awake until its {adj} end.|What a {adj} {part}!"
        "|{name} plays a {job} who finds {theme} in {town}, and the {adj} {part} almost saves the {film}.",
        "open": "This is a {adj} {film}|A {adj}, {adj} {film}|The director has made a {adj} {film}"
        "|Here comes another {adj} {film}",
        "about": "about {theme} and {theme}|about a {job} in search of {theme}|that turns {theme} into {theme}",
        "but": "but|although|while|and yet",
        "flaw": "the {part} feels {adj}|it runs out of {theme}|we have seen its {part} before",
        "film": "comedy|thriller|drama|western|musical|documentary|sequel|romance|satire|fable",
        "adj": "dull|charming|clumsy|tender|noisy|brilliant|hollow|witty|slow|gorgeous|awkward|bitter|honest"
        "|predictable|fresh",
        "part": "script|acting|soundtrack|plot|camera work|dialogue|ending|cast|humor|pacing",
        "theme": "revenge|family secrets|first love|greed|lost youth|friendship|war|jealousy|fame|loneliness"
        "|forgiveness",
        "job": "boxer|teacher|smuggler|pianist|waitress|detective|soldier|farmer|lawyer",
    },
    "life": {
        "S": "{name} was born in {town} in {year}.|{name} was {art} {job} who {did}."
        "|In {year} {name} married a {job} from {town}."
        "|After {study} at the university of {town}, {name} became {art} {job} and {did}."
        "|{name} died in {town} on {month} {n}, {year}."
        "|{name} ({year}) was {art} {job}, best known for {work}, for which the academy of {town} gave a medal"
        " in {year}."
        "|Together with {name}, who had come from {town} in {year}, {name} founded a school where every {job}"
        " could learn {study}.",
        "art": "a Danish|a Peruvian|a young|a famous|a self-taught|a Scottish|a retired|a Belgian",
        "job": "chemist|poet|surgeon|senator|engraver|astronomer|composer|admiral|botanist|architect|swimmer|judge",
        "did": "wrote {count} books on {study}|moved to {town} in {year}|led an expedition to {town}"
        "|taught {study} until {year}",
        "study": "medicine|law|painting|geometry|philosophy|engineering|music|theology",
        "n": "3|8|12|17|21|29",
        "work": "a theory of tides|portraits of sailors|a bridge near {town}|songs for children|a catalogue of stars",
    },
    "weather": {
        "S": "{sky} will reach {town} on {day}.|Expect {sky} in the {where} and {sky} near the coast."
        "|{day} brings {sky}.|Winds from the {where} will carry {sky} to {town} by {day} evening, {then}."
        "|Roads around {town} were closed after {sky}."
        "|Forecasters in {town} warn of {sky} from {day} until {day}, {then}, with {sky} returning to the"
        " {where} in {month}.",
        "sky": "heavy rain|dense fog|light snow|strong gusts|bright sunshine|scattered showers|freezing drizzle"
        "|thunderstorms|mild air|hail|low clouds",
        "where": "north|south|west|east|mountains|valleys|islands",
        "then": "followed by {sky}|before the pressure rises again|and farmers should cover their crops"
        "|while ferries stay in port",
    },
    "kitchen": {
        "S": "{cut} the {food} and add the {food}.|{cut} {count} {tool}s of {food} in a {tool} until golden."
        "|Serve the {food} warm with {food} and a little {food}.|Never wash the {tool} with soap."
        "|Let it rest overnight."
        "|While the {food} simmers, {low} the {food}, season with {food}, and keep both in a covered {tool} for"
        " {count} minutes."
        "|Place the {tool} in the oven, wait until the {food} turns brown, then {low} the {food} over it and"
        " serve with {food}.",
        "cut": "Chop|Slice|Fry|Roast|Whisk|Peel|Boil|Grate|Knead",
        "low": "chop|pour|sprinkle|mash|fold|spread",
        "food": "onions|butter|flour|crème fraîche|lentils|garlic|mushrooms|rice|honey|cinnamon|spinach|walnuts"
        "|parsley|trout|beans",
        "tool": "bowl|pan|spoon|pot|tray|cup|dish",
    },
    "nature": {
        "S": "The {beast} feeds on {prey}.|{beasts} hide in {place} during the day and hunt {prey} at night."
        "|Unlike the {beast}, the {beast} does not need {prey}."
        "|Young {beasts} stay with their mother for {count} {time}."
        "|Scientists who followed {count} {beasts} through {place} found that they {does} whenever {prey} became rare."
        "|In {place} the {beast} {did} so slowly that {prey} can spread, which is why {beasts} are counted"
        " again every {count} {time}.",
        "beast": "heron|badger|salamander|lynx|beetle|otter|owl|tortoise|bat|crane",
        "time": "weeks|months|years|seasons",
        "beasts": "herons|badgers|salamanders|lynxes|beetles|otters|owls|tortoises|bats|cranes",
        "prey": "mosses|snails|small fish|berries|larvae|mice|roots|frogs|seeds",
        "does": "migrate|sleep longer|fight|eat less",
        "did": "grows|breeds|moves|recovers",
        "place": "caves|wetlands|old forests|river banks|dry meadows|high mountains",
    },
    "council": {
        "S": "The {body} of {town} {voted} on {day}.|{name} told the {body} that {claim}.|Critics say {claim}."
        '|"{Claim}," said {name}.|The {body} {voted}, {because} {claim}.'
        "|Nobody knows yet whether the {body} {voted} in {month} or not."
        "|After a debate that lasted {count} hours, the {body} of {town} {voted}, although {name} had warned"
        " that {claim} and {claim}.",
        "body": "council|school board|harbor authority|court|union|parliament|committee|police",
        "because": "because|since|after it heard that",
        "voted": "approved a new {plan}|rejected the {plan}|delayed the {plan} until {month}"
        "|cut the budget for the {plan}",
        "plan": "tram line|library|stadium|market hall|water tax|bicycle path|hospital wing|housing estate|museum",
        "claim": "rents would rise|the {plan} is too expensive|nobody asked the residents"
        "|the {plan} will create {count} jobs|trust is lost",
        "Claim": "Rents are rising|We need the {plan}|The {plan} can wait|This was a mistake",
    },
}
OTHERS = {
    "german": {
        "S": "{Wer} {tut} {was} {wo}.|{Wann} {tut} {wer} {was}."
        "|{Wann} {tut} {wer} {wo} {was}, weil {wer} {was} vergessen hat."
        "|{Wer} glaubt nicht, dass {wer} {wo} {was} findet.|{Wo} gibt es keine Straße mehr.",
        "Wer": "Der Bäcker|Die Ärztin|Mein Großvater|Das Mädchen|Ein Räuber|Unsere Lehrerin|Der müde Förster",
        "wer": "der Bäcker|die Ärztin|mein Großvater|das Mädchen|ein Räuber|unsere Lehrerin|der müde Förster|niemand",
        "tut": "sucht|kauft|öffnet|verliert|bemalt|verschenkt|prüft|trägt",
        "Wo": "Hinter dem Fluss|Im Süden|Jenseits der Brücke",
        "was": "einen Schlüssel|das grüne Fahrrad|drei Äpfel|die Bücher|einen Löffel|den Käfig|viele Briefe"
        "|ein Stück Brot",
        "wo": "im Garten|auf dem Markt|unter der Brücke|am Bahnhof|in der Küche|vor dem Rathaus|neben der Mühle",
        "Wann": "Heute|Jeden Morgen|Im Frühling|Nach dem Essen|Am Dienstag|Kurz vor Mitternacht",
    },
    "chinese": {
        "S": "{when}{who}在{where}{does}{what}。|{who}{does}了{count}{what}。|{who}说{where}没有{what}。"
        "|{when}，{who}和{who}一起去{where}{does}{what}。|因为{who}不喜欢{what}，所以{when}{does}{what}。",
        "when": "昨天|今年春天|每天早上|下午三点|星期六|去年|晚饭以后",
        "who": "老师|我的姐姐|医生|邻居|小王|那个孩子|农民|司机",
        "where": "公园里|图书馆|火车站|河边|厨房|学校门口|山上|市场",
        "does": "寻找|购买|整理|画|打开|检查|借",
        "what": "旧书|苹果|自行车|地图|雨伞|花瓶|报纸|钥匙|蜡烛",
        "count": "两个|三件|许多|一些|十个",
    },
    "digits": {
        "S": "{d} {d} {d} {d}|{d} {d} {d} {d} {d}|{d} {d} {d} {d} {d} {d}",
        "d": "zero|one|two|three|four|five|six|seven|eight|nine",
    },
}
_CLASSES = (
    "airplane anchor apple banjo bicycle bucket cactus camel candle canoe castle clock daisy dolphin drum elephant"
    " flute giraffe guitar hammer kettle ladder lamp lemon lizard mushroom panda parrot piano pumpkin rocket rose"
    " sandal shark sofa train truck umbrella violin zebra"
)
CAPTIONS = {
    "S": "a {how} {class} {where}|a photo of a {class} {where}|{two} {class}s and a {class} {where}"
    "|a {class} beside a {thing}|close view of a {how} {class} in front of a {thing} {where}",
    "how": "small|red|broken|shiny|wooden|old|yellow",
    "two": "two|three|many",
    "thing": "wall|person|tree|fence|car",
    "where": "on a table|in the grass|near the water|under a blue sky|in a dark room|on the street",
}
_FUNCTION_WORDS = (
    "a an the of in on at to for from with by and or but although while yet if that this which who what when where"
    " why how is are was were be been being has had have will would can could do does did not no never nobody it its"
    " they their he she his her we you than then so as until after before during because since there here more most"
    " one some any every each few several another about into over through again only also both"
)
CLASSES = _CLASSES.split()
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())


def expand(grammar: dict[str, str], symbol: str, rng: random.Random) -> str:
    chosen = rng.choice((grammar.get(symbol) or SHARED[symbol]).split("|"))
    return re.sub(r"\{(\w+)\}", lambda found: expand(grammar, found[1], rng), chosen)


def _one(kind: str, rng: random.Random) -> tuple[str, str]:
    if kind == "captions":
        genre = rng.choice(CLASSES)
        return expand({**CAPTIONS, "class": genre}, "S", rng), genre
    if kind.startswith("english"):
        genre = rng.choice(list(ENGLISH)[: int(kind.partition("-")[2] or len(ENGLISH))])
        return expand(ENGLISH[genre], "S", rng), genre
    return expand(OTHERS[kind], "S", rng), kind


def sentences(kind: str, count: int, seed: int) -> list[tuple[str, str]]:
    """Return distinct sentences of 4 to 35 words (Chinese: characters), each with its genre."""
    rng, found = random.Random(f"{kind} {seed}"), {}
    while len(found) < count:
        text, genre = _one(kind, rng)
        if 4 <= (len(text) if kind == "chinese" else len(text.split())) <= 35:
            found.setdefault(text, genre)
    return list(found.items())


def bare(word: str) -> str:
    """Return a word in lower case without the marks around it."""
    return word.lower().strip(".,;:!?()\"'«»")


def content_words(text: str) -> list[str]:
    """Return the words of a text that are no function words, without marks."""
    return [w for w in map(bare, text.split()) if w and w not in FUNCTION_WORDS]
