"""Word lists of the rules: closed classes, and the few open ones that the grammar of captions turns on."""

RULES_VERSION = 1  # raise it when the rules give other triplets


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Plurals that mean something else in the singular, or have none.
PLURALS = _set(
    "arts athletics bagpipes belongings binoculars bleachers briefs capris chaps clothes clippers dreadlocks "
    "earphones eyeglasses fatigues fireworks glasses goggles graphics groceries gymnastics headphones headquarters "
    "jeans khakis leggings lens mathematics news nylons outskirts overalls pajamas pants pliers pyjamas rapids "
    "remains ruins scissors scrubs series shallows shorts slacks species stairs sunglasses surroundings suspenders "
    "sweatpants sweats tights trousers trunks undergarments underpants woods gas bus tennis christmas canvas "
    "cross-country"
)

#: Base forms that the tables of the model lack or have otherwise.
LEMMAS = {
    ("bathing", "verb"): "bathe",
    ("bathed", "verb"): "bathe",
    ("laying", "verb"): "lie",
    ("lays", "verb"): "lie",
    ("laid", "verb"): "lie",
    ("lay", "verb"): "lie",
    ("left", "verb"): "leave",
    ("found", "verb"): "find",
    ("saw", "verb"): "see",
    ("lit", "verb"): "light",
    ("fell", "verb"): "fall",
    ("felled", "verb"): "fell",
    ("wound", "verb"): "wind",
    ("ground", "verb"): "grind",
    ("bound", "verb"): "bind",
    ("bounds", "verb"): "bound",
    ("'s", "verb"): "be",
    ("people", "noun"): "people",
    ("peoples", "noun"): "people",
    ("mens", "noun"): "man",
    ("womens", "noun"): "woman",
    ("childrens", "noun"): "child",
    ("buses", "noun"): "bus",
    ("busses", "noun"): "bus",
    ("axes", "noun"): "axe",
    ("media", "noun"): "media",
    ("data", "noun"): "data",
    ("fishes", "noun"): "fish",
    ("leaves", "noun"): "leaf",
    ("wolves", "noun"): "wolf",
    ("skis", "noun"): "ski",
    ("bikers", "noun"): "biker",
    ("tutus", "noun"): "tutu",
    ("menus", "noun"): "menu",
    ("graffiti", "noun"): "graffiti",
    ("confetti", "noun"): "confetti",
    ("spaghetti", "noun"): "spaghetti",
}

COLOURS = _set(
    "amber aqua auburn azure beige black blonde blond blue bronze brown brunette burgundy charcoal copper coral cream "
    "crimson cyan fuchsia gold golden gray green grey indigo ivory khaki lavender lilac lime magenta maroon mauve "
    "navy neon ochre olive orange peach periwinkle pink plum purple red rose ruby rust salmon scarlet silver tan "
    "taupe teal turquoise violet white yellow"
)
#: Adjectives that could be nouns.
PLAIN = _set(
    "furry big small large little old young long short tall thin fat wide flat dark bright calm wet dry shaggy fluffy "
    "grassy sandy rocky muddy dirty clean empty plain metal round cold hot smooth open modern"
)
#: What can stand before a colour and belongs to it.
SHADES = _set("bright dark deep dull light lime navy neon pale hot olive royal sky baby army forest mint pastel pea")
#: Nouns that make an orange or a rose before them a fruit or a flower.
NOT_COLOURED = {
    "orange": _set("juice slice peel tree soda fruit segment half wedge rind piece grove"),
    "rose": _set("bush garden petal bouquet"),
    "lime": _set("slice juice wedge"),
    "peach": _set("tree slice cobbler"),
    "plum": _set("tree"),
    "olive": _set("tree oil"),
    "cream": _set("cheese puff sauce cone"),
    "gold": _set("fish medal medalist"),
    "silver": _set("ware medal"),
}

#: Nouns that say what a thing is made of, and those that qualify people and animals: adjectives before a noun.
LIKE_ADJECTIVES = _set(
    "adult aluminum asphalt bamboo brick cardboard cement ceramic chrome cobblestone concrete cotton denim fiberglass "
    "fleece granite gravel lace leather linen male female marble metal plaid plastic porcelain rubber satin silk "
    "stainless steel stone straw stucco suede tile tweed velvet vinyl wicker wood wooden wool woolen foam teen "
    "teenage preteen toddler youth infant antique vintage miniature multicolor multicolored"
)

NUMBERS = {
    "2": "two",
    "3": "three",
    "4": "four",
    "5": "five",
    "6": "six",
    "7": "seven",
    "8": "eight",
    "9": "nine",
    "10": "ten",
    "11": "eleven",
    "12": "twelve",
}
NUMBER_WORDS = frozenset(NUMBERS.values()) | {"dozen", "twenty", "thirty", "hundred"}

#: Adjectives and determiners that say nothing of the picture.
EMPTY_ADJECTIVES = _set(
    "able couple middle about another apparent aware available certain current different entire final first former "
    "further general last least less likely main more most much near next other overall own particular possible "
    "previous proper real regular related respective same second several-other similar single some sort specific such "
    "third total typical unable unidentified unknown usual various whole one ready many-more front back side top "
    "bottom upper lower nearby"
)

#: Nouns that stand for nothing visible.
EMPTY_NOUNS = _set(
    "aspect back beginning bit bottom center centre chance each edge end era example fact form front half he her hers "
    "herself him himself his i it itself kind lots manner me means middle mine moment most much mode none number one "
    "ones other others ourselves part plenty progress purpose reason rest self she side sideways sort somebody "
    "something someone stuff that them themselves theirs there these they thing things this those time today top turn "
    "type us variety way we what which who whom whose you anyone anybody anything everyone everybody everything "
    "nothing nobody another all both either neither any some few many several side-by-side back-to-back hand-in-hand "
    "face-to-face upside-down face-down up-close next outwards upwards downwards forwards backwards inwards onwards "
    "while order place position direction t's s ' - -- etc x"
)

#: "a group of people": the people act; the group is said of them.
COLLECTIVES = _set(
    "group crowd herd flock bunch pack row line team stack pile piece slice cluster swarm school bundle gang band "
    "heap string collection assortment array set gathering party trio duo family class army parade fleet litter mass "
    "cloud puff jet slab chunk"
)
#: "a pair of shoes", "lots of dogs": the second noun alone counts.
QUANTITIES = _set(
    "pair couple lot lots number variety bit plenty handful dozen dozens hundreds thousands series type kind sort "
    "style host multitude amount abundance load loads ton tons majority rest half most all both some one each several "
    "many any few none two three four five six seven eight nine ten part portion selection range mix mixture "
    "combination body"
)
#: Things that are looked through: "a picture of a dog" is about the dog.
FRAMES = _set(
    "picture photo photograph pic image shot view snapshot close-up closeup close portrait scene depiction footage "
    "photography selfie still overview look sight pictures photos images photographs views glimpse example"
)
FRAME_VERBS = _set("be show depict feature display contain have capture portray present include illustrate")

#: Places relative to a thing: "in front of", "on top of", "at the edge of".
PLACES = _set(
    "front top middle side edge back center centre bottom end corner rear base midst foot head tip outside inside "
    "direction vicinity presence shape form style company process act possession name"
)
#: Adverbs that make one relation with a preposition after them.
PAIRS = frozenset(
    tuple(pair.split())
    for pair in (
        "next to,close to,near to,adjacent to,opposite to,up to,down to,over to,back to,on to,in to,out of,off of,"
        "inside of,outside of,ahead of,up against,up on,up onto,up from,down on,down from,away from,out from,"
        "across from,apart from,along with,together with,in between,off to,out to,around to,behind of,through to,"
        "out into,down into,up into,up at,down at,out at,over at,instead of,on top"
    ).split(",")
)
#: Adverbs that belong to their verb: "walk away", "jump up".
DIRECTIONS = _set(
    "up down away back out off around over along by through in on forward outside inside together upside backwards "
    "apart"
)
#: Verbs that say how another verb is done.
LIGHT_VERBS = _set(
    "try attempt seem appear begin start continue prepare go get want need intend decide proceed happen come use "
    "learn plan like love about"
)
#: Verbs of a state whose "by" is a place: "parked by a tree".
STATES = _set(
    "park seat dress stand sit lie pose gather locate situate lean perch place position bow squat moor dock tie line"
)
#: Verbs whose object is what the clause after them is about: "watch a dog run".
PERCEPTION = _set("watch see let help make have observe show")

#: Verbs whose object does what the verb after it says: "send dirt flying".
CAUSES = _set("send keep leave set see watch make have help let find catch")
#: Verbs that say how something is: "look happy".
COPULAS = _set("look seem appear become get remain stay feel")
#: Verbs whose object has what comes "with" it: "wear a shirt with stripes".
HAVING = _set("wear have contain feature show include see display")
#: Verbs done with a tool: "hit a ball with a bat".
USING = _set("hit cut strike slice feed wash brush spray clean eat dig paint tease dry film poke swat bat touch write")

PEOPLE = _set(
    "adult athlete audience baby ballplayer batter bicyclist biker boarder boy bride catcher cheerleader child "
    "climber couple cowboy crowd cyclist dancer fan father female fisherman friend gentleman girl girls guy hiker "
    "jockey jogger kid lady male man mother motorcyclist musician officer people performer person player police "
    "policeman quarterback racer rider rower runner skateboarder skater skier snowboarder soldier student surfer "
    "swimmer teen teenager tennis toddler tourist wakeboarder woman worker youngster youth referee onlooker spectator "
    "passenger pedestrian driver infant brother sister son daughter husband wife clown group team crew family class "
    "golfer bowler"
)
FEMALE = _set("girl woman lady female mother bride daughter sister wife cheerleader waitress princess baby child")
MALE = _set("boy man guy male father son brother husband cowboy fisherman gentleman policeman baby child")
ANIMALS = _set(
    "animal bear bird bull calf cat cow deer dog duck elephant giraffe goat goose greyhound hound horse kitten lamb "
    "monkey ox parrot pigeon pony poodle pug puppy retriever seagull sheep shepherd squirrel swan terrier wolf zebra "
    "dalmatian collie rottweiler dachshund labrador lab chihuahua beagle boxer corgi husky mutt spaniel pup doberman"
)
ANIMATE = PEOPLE | ANIMALS
#: Endings of further people.
DOERS = tuple(
    "man woman boy girl person player rider boarder skater biker surfer skier hiker climber racer dancer walker driver "
    "worker keeper fighter performer lifter goer cyclist guitarist artist swimmer runner trainer teacher coordinator "
    "drummer singer member leader owner dog puppy terrier".split()
)

#: Gerunds before a noun that say what it is for: "swimming pool".
PURPOSES = _set(
    "baking folding bathing batting bowling boxing building camping changing climbing clothing cooking cutting dining "
    "diving drinking fencing fighting fishing flying frying gaming gathering hiking hunting ironing landing "
    "laughing-stock lighting living loading measuring mixing mowing operating packing parking passing-lane racing "
    "reading riding rocking rolling-pin running sailing serving sewing shopping shaving sitting skating skiing "
    "sleeping smoking steering surfing swimming training viewing waiting walking washing watering retaining wedding "
    "weight-lifting working wrestling wading snowboarding skateboarding sporting carving chewing crossing dancing "
    "docking engineering hanging-basket heating jumping knitting lifting listening marching meeting painting plumbing "
    "seating stuffing teething vending welding writing wakeboarding kayaking motoring driving bicycling biking "
    "motorcycling sledding"
)
NOUNS_IN_ING = _set("building railing clothing ceiling wedding painting crossing opening sibling")
#: Verbs of people and animals: not of what they wear or carry.
ACTIONS = _set(
    "walk run jump ride wear hold play look smile stand watch climb carry throw catch kick hit swim dance skate ski "
    "surf snowboard skateboard pose eat drink talk chase pull push swing take make do read jog hike leap wave laugh "
    "perform dive sleep bite chew bark race kneel crouch paddle row dig crawl sniff lick squat bend try get prepare "
    "attempt compete grab reach stare gaze point sing cook cut bat pitch bowl practice yell scream cheer enjoy gather "
    "use touch give put wait work sled speak listen exercise celebrate wrestle fight tackle dribble shoot skip hop "
    "march cross pick pet hug kiss feed brush wash clean drive bike cycle kayak wade splash share"
)
#: Verbs of things, not of those who hold or wear them.
STATIVE = _set(
    "show depict feature display contain cover overlook surround hold have face line fill form advertise bear include "
    "make say read hang reflect support block border crowd decorate adorn top cast emit give reach touch pull carry"
)
#: What a garment does.
SHOWS = _set("show depict feature display bear read say cover match hang contain include advertise")
#: What comes before a verb as a part of it: "ice skate".
SPORTS = _set(
    "bungee ice roller rock water mud kite wind sky snow body para jet free hula cross-country arm horseback dirt"
)
#: Things that are never what is done.
NO_VERBS = _set(
    "backpack double bathtub bear bench bicycle bottle bowl broccoli bubble carrot chair clothes couch cup fork "
    "glasses goalie hat helmet jeans kite leash meat mirror orange outfit oven pan pants pizza refrigerator rope "
    "shirt shoe shorts shower sink spoon stove sunglasses sunset t-shirt table teddy toilet tongue towel truck tub "
    "umbrella vase bus burger sandwich salad microwave bagel donut doughnut banana apple knife"
)
#: Adverbs of place that the parser takes for nouns.
PLACE_ADVERBS = _set(
    "onstage indoors outdoors airborne overhead nearby headfirst barefoot shirtless upright sideways downhill uphill "
    "downstairs upstairs backstage offshore underwater alongside together outside inside"
)
#: What people and animals wear.
GARMENTS = _set(
    "apron backpack bandana bikini boot bra cap cape clothes clothing coat collar costume dress equipment gear "
    "glasses glove goggles hat helmet hood hoodie jacket jeans jersey kilt kimono leash life-jacket mask muzzle "
    "outfit overalls pajamas pants robe sari scarf shirt shoe shorts skirt sock suit sunglasses sweater sweatshirt "
    "swimsuit swimwear t-shirt tee tie top trunks tutu underwear uniform vest veil wetsuit wig attire bathing-suit "
    "clothe harness headphones"
)
#: Verbs of what stays where it is: of a person too, where the noun before is worn.
POSTURES = _set("sit lie lean rest wait sleep kneel float stay relax lounge recline")
VEHICLES = _set(
    "airplane bicycle bike biplane boat bus car cart engine ferry helicopter jeep jet kayak locomotive moped "
    "motorbike motorcycle plane raft sailboat scooter ship sled taxi tractor train tram trolley truck van vehicle "
    "wagon"
)
MOVES = _set("go travel move come drive pull ride fly sail head race roll speed approach cross pass turn take")
#: Endings of two-word adjectives: "dark skinned", "snow covered".
ADJECTIVE_HEADS = _set(
    "shirted uniformed jacketed suited furred coated breasted tailed eared nosed necked sided framed walled roofed "
    "aged drawn themed free bearded clad colored coloured covered dressed eyed faced fashioned filled footed haired "
    "handed headed legged lit looking made patterned shaped sized skinned sleeved striped topped trimmed wheeled "
    "lined"
)
#: Those that go with a noun or an adverb only: "snow covered", but no "young bearded".
AFTER_NOUNS = _set(
    "bearded covered drawn filled free lined lit made striped topped trimmed patterned themed clad framed dressed"
)
EMPTY_HEADS = _set("colored coloured sized shaped")
#: Names whose first word looks like an adjective or a verb.
FIXED_NAMES = frozenset(
    (
        "german shepherd,golden retriever,stuffed animal,polar bear,teddy bear,hot dog,french fry,high chair,"
        "remote control,grand piano,ice cream,double decker,green bean,flat screen,martial art,electric guitar,"
        "acoustic guitar,bald eagle,grizzly bear,stained glass,wet suit,hard hat,high heel,great dane,border collie,"
        "black bear,brown bear,bell pepper,sweet potato,french toast,swiss cheese,toy car,solar panel,open sign,"
        "shopping cart,fried egg,sour cream,whipped cream,mashed potato,baked potato,baked good,fire hydrant,"
        "stop sign,traffic light,police officer,cell phone,mobile phone,first aid,air conditioner,big ben,"
        "american flag,british flag,ferris wheel,christmas tree,union jack,red carpet,public transportation,"
        "playing card"
    ).split(",")
)
#: Parts of names that say nothing.
EMPTY_PARTS = _set("other others size sized style type kind color colour sort sorts")
REFLEXIVE = _set("himself herself itself themselves myself yourself ourselves oneself")
RELATIVE = _set("who which that whom")
PRONOUNS = _set("he she it they him her them his its their")
