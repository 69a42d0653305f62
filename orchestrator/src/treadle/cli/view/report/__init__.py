"""What a run did, as one self-contained page: `facts` reads the store, `drawing` lays out the graph, `page` renders."""
