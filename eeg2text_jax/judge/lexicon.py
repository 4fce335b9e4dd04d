"""Word lists behind controlled edits of English sentences. All are lower case."""


def _pairs_of(listed: str) -> dict[str, str]:
    """Map each word of the list "word counterpart,..." to its counterpart, in both directions.

    A word that is listed twice gets its first counterpart. A counterpart of several words is not mapped back.
    """
    found: dict[str, str] = {}
    for entry in listed.split(","):
        left, _, right = entry.strip().partition(" ")
        found.setdefault(left, right)
        if " " not in right:
            found.setdefault(right, left)
    return found


_CONTRACTIONS = (
    "do not:don't,does not:doesn't,did not:didn't,is not:isn't,are not:aren't,was not:wasn't,were not:weren't,"
    "has not:hasn't,have not:haven't,had not:hadn't,cannot:can't,could not:couldn't,would not:wouldn't,"
    "should not:shouldn't,will not:won't,it is:it's,he is:he's,she is:she's,that is:that's,there is:there's,"
    "they are:they're,we are:we're,you are:you're,i am:i'm,i have:i've,they have:they've,you will:you'll,"
    "he would:he'd,let us:let's"
)
CONTRACTIONS = dict(entry.split(":") for entry in _CONTRACTIONS.split(","))

# Spelling variants, and synonyms that are interchangeable in most sentences.
VARIANTS = _pairs_of(
    "color colour,favorite favourite,honor honour,humor humour,labor labour,theater theatre,center centre,gray grey,"
    "program programme,traveled travelled,organized organised,realize realise,recognize recognise,film movie,films "
    "movies,big large,begin start,began started,buy purchase,bought purchased,child kid,children kids,nearly almost,"
    "often frequently,quick fast,quickly rapidly,sick ill,maybe perhaps,whole entire,wonderful marvelous,funny "
    "amusing,boring dull,smart clever,brilliant splendid,story tale,career profession,received got,located situated,"
    "founded established,attended went to,home house,father dad,mother mum,town city,author writer,physician doctor,"
    "attorney lawyer,job position,prize award,company firm,about around,later afterwards,approximately roughly,wife "
    "spouse,numerous many,died passed away,however but,movie picture,actors performers,scary frightening,sad unhappy,"
    "hard difficult,simple easy,strange odd,completely entirely,usually normally,help assist,helped assisted,kill "
    "murder,killed murdered,famous renowned,main chief,world globe,road street,war conflict,ended finished,shows "
    "reveals,moving touching,audience viewers"
)

_NUMBER_WORDS = "two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty"
_DIGITS = "2 3 4 5 6 7 8 9 10 11 12 20 30 40 50"
NUMERALS = dict(zip(_NUMBER_WORDS.split(" "), _DIGITS.split(" "), strict=True))

FILLERS = ("um", "uh", "you know", "well", "like", "i mean", "er")

# Function words that are easily confused; a listener corrects such an error.
FUNCTIONS = _pairs_of(
    "which that,in at,their there,his is,on in,for four,to too,with and,of off,its it's,your you're,then than,who that,"
    "by bye,whose who's,into in,from form,a an,as is,was were,has have,are our"
)

_AUXILIARIES = "is are was were will would can could should must may might does did has had have do am"
AUXILIARIES = frozenset(_AUXILIARIES.split(" "))

ANTONYMS = _pairs_of(
    "good bad,best worst,better worse,first last,early late,before after,always never,more less,most least,high low,"
    "higher lower,old young,older younger,new old,big small,large small,long short,longer shorter,strong weak,rich "
    "poor,happy sad,hot cold,warm cold,fast slow,easy hard,full empty,open closed,right wrong,true false,success "
    "failure,successful unsuccessful,succeeded failed,won lost,win lose,love hate,loved hated,loves hates,like "
    "dislike,liked disliked,born buried,married divorced,marriage divorce,began ended,begin end,beginning end,start "
    "stop,started stopped,increase decrease,increased decreased,rise fall,rose fell,came left,arrived departed,joined "
    "left,entered left,accepted refused,accept refuse,agreed disagreed,gave took,give take,bought sold,buy sell,built "
    "destroyed,friend enemy,friends enemies,mother father,brother sister,brothers sisters,son daughter,sons daughters,"
    "husband wife,man woman,men women,boy girl,boys girls,king queen,north south,northern southern,east west,eastern "
    "western,day night,morning evening,war peace,life death,alive dead,died survived,interesting boring,fascinating "
    "dull,funny unfunny,exciting tedious,brilliant stupid,beautiful ugly,perfect flawed,rare common,famous unknown,"
    "public private,inside outside,above below,near far,many few,all none,everyone nobody,everything nothing,major "
    "minor,major slight,majority minority,male female,president secretary,teacher student,winner loser,hero villain,"
    "heroes villains,comedy tragedy,fresh stale,clever silly,serious comic,deep shallow,light dark,bright dim,"
    "enjoyable unpleasant,worth unworthy,positive negative,oldest youngest,largest smallest,highest lowest,remember "
    "forget,with without,together apart,ahead behind,safe dangerous,simple complicated,legal illegal,employed fired,"
    "promoted dismissed,elected defeated,appointed dismissed"
)

_STOP = (
    "a an the and or but nor so yet if then than that which who whom whose this these those there here it its he him "
    "his she her hers they them their we us our you your i me my is are was were be been being am do does did has have "
    "had will would can could shall should may might must of in on at to from by with for as into onto over under "
    "about after before between through during not no never very too also just only even ever when where why how what "
    "all any some such own same other another each both more most less least up down out off again once"
)
STOP = frozenset(_STOP.split(" "))
